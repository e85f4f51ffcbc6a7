from __future__ import annotations

from pathlib import Path

import pytest

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.lab import namespace

pytestmark = pytest.mark.unit


def test_the_first_free_network_is_taken() -> None:
    assert str(namespace.choose_network([])) == "10.231.0.0/24"
    assert str(namespace.choose_network(["10.231.0.0/24", "192.168.1.0/24"])) == "10.231.1.0/24"


def test_hosts_larger_networks_and_ipv6_are_understood() -> None:
    routed = ["10.231.0.7", "10.231.1.0/25", "10.231.2.0/23", "fe80::/64", "::1"]
    assert str(namespace.choose_network(routed)) == "10.231.4.0/24"


def test_a_machine_that_routes_the_whole_range_has_no_room() -> None:
    with pytest.raises(UsageError, match=r"no free network .*10\.231\.0\.0/16"):
        namespace.choose_network(["10.0.0.0/8"])


def test_names_of_links_are_stable_distinct_and_as_short_as_the_kernel_wants() -> None:
    one, other = Path("/root/.cache/cbt-crypto/labs/one"), Path("/root/.cache/cbt-crypto/labs/two")
    names = {namespace.bridge_name(one), namespace.bridge_name(other), namespace.link_name(one, 31)}
    assert len(names) == 3
    assert all(len(name) <= 15 for name in names)
    assert namespace.bridge_name(one) == namespace.bridge_name(Path(str(one)))


def test_the_bridge_of_another_container_s_lab_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host's network, a lab of the same path has links of the same name."""
    lab, links = tmp_path / "lab", tmp_path / "net"
    lab.mkdir()
    bridge = namespace.bridge_name(lab)
    (links / bridge).mkdir(parents=True)
    monkeypatch.setattr(namespace, "NETWORK", links)
    for alias in ("", marked_processes.mark_of(lab)):
        (links / bridge / "ifalias").write_text(f"{alias}\n")
        # What is not there cannot be removed, but it was tried.
        with pytest.raises(RunError, match=f"network links {bridge} cannot be removed"):
            namespace.remove(lab)
    lab.rename(tmp_path / "theirs")
    namespace.remove(lab)
    lab.mkdir()
    namespace.remove(lab)
