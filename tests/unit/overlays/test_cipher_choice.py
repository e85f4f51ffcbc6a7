"""The fastest cipher of the hosts, and the kernel's drivers for ciphers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_hosts import FakeHosts

from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.luks import preparation
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.errors import RunError
from cbt_crypto.run.prepare import Choices

pytestmark = pytest.mark.unit

#: The published table of a Xeon Gold 6151.
XEON = """\
#     Algorithm |       Key |      Encryption |      Decryption
        aes-cbc        128b       904.3 MiB/s      2485.1 MiB/s
    serpent-cbc        128b        78.8 MiB/s       577.4 MiB/s
        aes-cbc        256b       695.8 MiB/s      2059.4 MiB/s
        aes-xts        256b      2351.5 MiB/s      2348.7 MiB/s
    serpent-xts        256b       560.1 MiB/s       571.4 MiB/s
        aes-xts        512b      1983.0 MiB/s      1979.6 MiB/s
"""
#: A processor without AES instructions, as its table would be.
OTHER = """\
        aes-xts        256b       120.0 MiB/s       110.0 MiB/s
        aes-xts        512b        90.0 MiB/s        80.0 MiB/s
    serpent-xts        256b       300.0 MiB/s       310.0 MiB/s
"""
PROC_CRYPTO = """\
name         : xts(aes)
driver       : xts-aes-aesni
module       : aesni_intel
priority     : 401
selftest     : passed
internal     : no
async        : yes

name         : xts(aes)
driver       : xts(ecb(aes-generic))
module       : kernel
priority     : 100
selftest     : passed
internal     : no

name         : xts(aes)
driver       : untested
module       : new_card
priority     : 4000
selftest     : unknown
internal     : no

name         : sha256
driver       : sha256-ni
module       : kernel
priority     : 250
selftest     : passed
internal     : no
"""


def test_the_articles_choice() -> None:
    assert preparation.best([XEON]) == ("aes-xts-plain64", 256)


def test_the_slowest_host_decides() -> None:
    assert preparation.best([XEON, OTHER]) == ("serpent-xts-plain64", 256)


@pytest.mark.parametrize("outputs", [[], [""], [XEON, ""], ["aes-xts 256b N/A N/A"]])
def test_nothing_that_every_host_measured(outputs: list[str]) -> None:
    with pytest.raises(ValueError, match="measured no cipher on every host"):
        preparation.best(outputs)


def test_the_driver_in_use_is_the_one_of_the_highest_priority() -> None:
    assert preparation.drivers(PROC_CRYPTO) == [
        {
            "name": "xts(aes)",
            "driver": "xts-aes-aesni",
            "module": "aesni_intel",
            "priority": 401,
            "async": True,
        }
    ]


@pytest.mark.parametrize(("name", "asked"), [("odd-xts", 2), ("known", 1)])
def test_the_first_use_since_the_boot_is_no_speed(tmp_path: Path, name: str, asked: int) -> None:
    """The kernel loads its module then: a machine that had just booted had 1.4 MiB/s, then 37."""
    fake = tmp_path / "cryptsetup"
    fake.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked; wc -l < {tmp_path}/asked\n")
    fake.chmod(0o755)
    script = preparation.script(f"{name}-plain64", 512).replace("/proc/crypto", f"{tmp_path}/known")
    (tmp_path / "known").write_text("name         : plain64(known)\nname         : cbc(odd)\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    said = subprocess.check_output(["sh", "-euc", script], env={"PATH": path}, text=True)
    assert said.split() == [str(asked)]


def test_best_is_decided_by_what_hosts_measured(site: Any) -> None:
    scripts = Luks(cipher="best").ask(site)
    assert set(scripts) == {"node2", "node3"}
    assert scripts["node2"].count("cryptsetup benchmark") == len(preparation.CANDIDATES)
    decided = Luks(cipher="best", sector_size=4096).decided(dict.fromkeys(scripts, XEON))
    assert decided == Luks(cipher="aes-xts-plain64", key_size=256, sector_size=4096)
    assert Luks().ask(site) == {}
    with pytest.raises(RunError, match="name a cipher"):
        Luks(cipher="best").decided({"node2": ""})


def test_an_archive_keeps_what_was_decided(site: Any, tmp_path: Any) -> None:
    hosts = FakeHosts(lambda host, command: XEON)
    for _ in range(2):
        (decided,) = Choices(tmp_path, hosts.remote(), site).decided([Luks(cipher="best")])
        assert decided.model_dump()["key_size"] == 256
    assert len(hosts.calls) == 1
    assert (tmp_path / "results" / "choices.json").exists()


class Asking(Overlay):
    """One that must know of its hosts what another release may do otherwise."""

    name = "asking"
    said: str = ""

    def ask(self, site: Any) -> dict[str, str]:
        return {"node2": "ask"}

    def decided(self, outputs: Any) -> Asking:
        return Asking(said=outputs["node2"])


def hosts_of(release: str) -> FakeHosts:
    return FakeHosts(lambda *_: release)


def test_what_is_no_choice_is_asked_at_each_start(site: Any, tmp_path: Any) -> None:
    """An archive from before an upgrade, or a stranger's, said which options change live."""
    for release in ("Reef", "Tentacle"):
        hosts = hosts_of(release)
        choices = Choices(tmp_path, hosts.remote(), site)
        decided = choices.decided([Asking(), Asking()])
        assert [one.model_dump()["said"].strip() for one in decided] == [release] * 2
        assert len(hosts.calls) == 1


def test_what_is_noted_of_a_host() -> None:
    found = Luks().description(f"{XEON}@proc-crypto\n{PROC_CRYPTO}")
    assert [row["cipher"] for row in found["benchmark"]][:2] == ["aes-cbc", "serpent-cbc"]
    assert found["drivers"][0]["driver"] == "xts-aes-aesni"
