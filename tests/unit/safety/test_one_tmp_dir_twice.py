"""Two campaigns that come to one directory, or whose processes have one mark."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.remote import Remote, kill_script, preamble
from cbt_crypto.hosts.site import Site
from cbt_crypto.run import locks
from cbt_crypto.run.locks import hosts_held

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for mounts and namespaces")


def sh(text: str) -> subprocess.CompletedProcess[str]:
    script = f"set -eu\nSUDO=\n{text}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


@contextmanager
def held(tmp_dir: Path, run: str) -> Iterator[None]:
    site = Site(str(tmp_dir), "/c", "localhost", ("localhost",), ())
    with hosts_held(Remote(common, str(tmp_dir)), site, run, locks.this_run(tmp_dir.parent)):
        yield


def test_one_within_that_of_another_campaign(tmp_path: Path) -> None:
    """The outer one's end removed the inner one's, with all that was in it."""
    outer = tmp_path / "own"
    assert sh(directories.make(str(outer))).returncode == 0
    for within in (outer / "two", outer / "ceph" / "two"):
        for text in (directories.check(str(within)), directories.make(str(within))):
            said = sh(text)
            assert said.returncode != 0
            assert f"{within} is within {outer}, another campaign's" in said.stderr
    # a marker that is somebody else's keeps nobody out
    (tmp_path / ".cbt-crypto").touch()
    os.chown(tmp_path / ".cbt-crypto", 65534, 65534)
    assert sh(directories.check(str(tmp_path / "next"))).returncode == 0


@pytest.mark.parametrize("made", ["before", "since"])
def test_one_by_another_mount_of_it(tmp_path: Path, made: str) -> None:
    one, two = tmp_path / "disk" / "one", tmp_path / "again" / "one"
    for folder in (one.parent, two.parent):
        folder.mkdir()
    if made == "before":
        assert sh(directories.make(str(one))).returncode == 0
    subprocess.run(["mount", "--bind", one.parent, two.parent], check=True)
    try:
        with held(one, "first"):
            assert sh(directories.make(str(one))).returncode == 0
            with pytest.raises(UsageError, match="is in use by"), held(two, "second"):
                pass
    finally:
        subprocess.run(["umount", two.parent], check=True)
    with held(two, "second"):
        pass


def test_a_campaign_in_a_container_is_not_ended(tmp_path: Path) -> None:
    """It has the same tmp_dir and name of its host, so its processes have the same mark."""
    own = str(tmp_path / "own")
    marked = f"CBT_CRYPTO_MARK={own}@localhost sleep 60"
    separate = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
    kill = f"{preamble(own)}\nset -eu\n{kill_script(('KILL',))}"
    environment = {**os.environ, "CBT_HOST": "localhost"}
    with subprocess.Popen(
        [*separate, f"{marked} & echo up; wait; echo over"], stdout=subprocess.PIPE, text=True
    ) as theirs, subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "CBT_CRYPTO_MARK": f"{own}@localhost"}
    ) as ours:  # fmt: skip
        assert theirs.stdout is not None and theirs.stdout.readline() == "up\n"
        subprocess.run(["sh", "-c", kill], env=environment, check=True, timeout=60)
        assert ours.wait(10) == -9
        assert not select.select([theirs.stdout], [], [], 1)[0]
        theirs.kill()
