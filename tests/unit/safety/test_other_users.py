"""Other users of a host: what they make, hold or name decides nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.engine.upstream.checkout import find
from cbt_crypto.engine.upstream.cluster import make_own
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.remote import Remote, kill_script, preamble
from cbt_crypto.hosts.site import Site
from cbt_crypto.run import environment, hold_on_host, locks
from cbt_crypto.run.locks import LostHold, hosts_held, locked

pytestmark = pytest.mark.unit

NOBODY = 65534


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, to be somebody else too")


def sh(text: str) -> subprocess.CompletedProcess[str]:
    script = f"set -eu\nSUDO=\n{text}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


# -- locks ---------------------------------------------------------------------------------------

_LISTENS = """
import json, socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1].replace("@", chr(0), 1))
one.listen(8)
print("up", flush=True)
while True:
    client = one.accept()[0]
    try:
        client.sendall(sys.argv[2].encode())
    except OSError:
        pass
    client.close()
"""


@pytest.fixture
def listens(
    start_child: Callable[..., subprocess.Popen[str]],
) -> Callable[..., subprocess.Popen[str]]:
    """A process of another user that holds a lock's name, and says what it likes."""

    def start(resource: list[str], says: Any, user: int = NOBODY) -> subprocess.Popen[str]:
        address, *_ = hold_on_host.addresses(resource)
        command = ["setpriv", f"--reuid={user}", "--clear-groups", "/usr/bin/python3", "-c"]
        command += [_LISTENS, address.replace("\0", "@"), json.dumps(says)]
        return start_child(command)

    return start


def site(tmp_path: Path) -> Site:
    return Site(str(tmp_path / "own"), "/c", "localhost", ("localhost",), ())


def test_a_stranger_s_word_kills_nobody(tmp_path: Path, listens: Any) -> None:
    """He listens, says that he is a dead run of ours, and that its keeper is some process."""
    victim = subprocess.Popen(["sleep", "60"])
    try:
        dead = {**locks.this_run(tmp_path), "pid": 1, "started": 1}
        says = {**dead, "run": "mine", "keeper": victim.pid}
        stranger = listens(["tmp_dir", str(tmp_path / "own")], says)
        remote = Remote(common, str(tmp_path / "own"))
        with (
            pytest.raises(UsageError, match=f"by process {stranger.pid} of uid 65534, which is no"),
            hosts_held(remote, site(tmp_path), "mine", locks.this_run(tmp_path)),
        ):
            pytest.fail("held")
        assert victim.poll() is None and stranger.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_a_keeper_that_died_is_noticed(tmp_path: Path, listens: Any) -> None:
    remote, resource = Remote(common, str(tmp_path / "own")), ["tmp_dir", str(tmp_path / "own")]
    with hosts_held(remote, site(tmp_path), "mine", locks.this_run(tmp_path)) as hold:
        hold.check()
        for others in (False, True):
            address, *_ = hold_on_host.addresses(resource)
            found = hold_on_host.ask(address)
            assert found and found["run"] == "mine"
            os.kill(found["keeper"], 9)
            while hold_on_host.ask(address) is not None:
                time.sleep(0.01)
            if not others:
                hold.check()  # which takes it back
                continue
            listens(resource, {"run": "another"})
            with pytest.raises(LostHold, match="and touches nothing more"):
                hold.check()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_lock_that_is_no_file_of_ours(tmp_path: Path, kind: str) -> None:
    precious, archive = tmp_path / "precious", tmp_path / "archive"
    precious.write_text("precious")
    archive.mkdir()
    lock = archive / ".lock"
    if kind == "link":
        lock.symlink_to(precious)
    elif kind == "hard link":
        os.link(precious, lock)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(UsageError, match=r"\.lock: was not made by this program"), locked(archive):
        pytest.fail("locked")
    assert precious.read_text() == "precious"


# -- directories ---------------------------------------------------------------------------------


def test_a_directory_that_somebody_made_first(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / ".cbt-crypto").touch()
    os.chown(own, NOBODY, NOBODY)
    for text in map(lambda act: act(str(own)), (directories.check, directories.make)):
        assert "belongs to uid 65534" in sh(text).stderr
    assert "belongs to uid 65534" in sh(directories.remove(str(own))).stderr
    assert own.exists()


def test_an_archive_that_somebody_made_meanwhile(tmp_path: Path) -> None:
    """While hosts were asked; root overwrote and removed files in the place that his link names."""
    sticky, victim = tmp_path / "sticky", tmp_path / "victim"
    sticky.mkdir()
    sticky.chmod(0o1777)
    victim.mkdir()
    archive = sticky / "archive"
    archive.mkdir()
    (archive / "results").symlink_to(victim)
    os.chown(archive, NOBODY, NOBODY)
    with pytest.raises(UsageError, match="link out of the archive"), locked(archive):
        raise AssertionError("it was held")
    (archive / "results").unlink()
    with pytest.raises(UsageError, match=f"belongs to uid {NOBODY}"), locked(archive):
        raise AssertionError("it was held")
    assert not list(victim.iterdir())


def test_a_place_for_keys_on_a_machine_that_is_no_host(tmp_path: Path) -> None:
    """Upstream's scp wrote the admin key where a user's link led, or into his file."""
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    make_own(str(sticky / "ours" / "client.admin"), None)
    theirs = sticky / "cbt" / "client.admin"
    theirs.mkdir(parents=True)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(RunError, match=f"belongs to uid {NOBODY}, and keys come there"):
        make_own(str(theirs), None)


@pytest.mark.parametrize("which", ["itself", "above", "link", "link above"])
def test_a_directory_that_others_may_replace(tmp_path: Path, which: str) -> None:
    above = tmp_path / "above"
    (above / "own").mkdir(parents=True)
    own = above / "own"
    if which == "itself":
        own.chmod(0o777)
    elif which == "above":
        above.chmod(0o777)
    elif which == "link":
        own = tmp_path / "link"
        own.symlink_to(above / "own")
    else:
        (tmp_path / "way").symlink_to(above)
        own = tmp_path / "way" / "own"
    done = sh(directories.make(str(own)))
    assert done.returncode != 0 and str(own) in done.stderr
    assert list((above / "own").iterdir()) == []


def test_a_lax_umask_opens_nothing(tmp_path: Path) -> None:
    own = tmp_path / "a" / "own"
    assert sh(f"umask 0\n{directories.make(str(own))}").returncode == 0
    assert own.stat().st_mode & 0o777 == 0o700
    assert own.parent.stat().st_mode & 0o022 == 0


def test_what_is_mounted_below_is_not_removed(tmp_path: Path) -> None:
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").write_text("x")
    assert sh(directories.make(str(own))).returncode == 0
    (own / "ceph" / "a b").mkdir(parents=True)
    text = f"""
mount --bind {theirs} '{own}/ceph/a b'
(
{directories.remove(str(own))}
) || (
{directories.remove(str(own), "ceph")}
) || echo refused
"""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"SUDO=\n{text}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr
    assert "is mounted below" in done.stderr
    assert (theirs / "precious").exists()
    (own / "link").symlink_to(theirs)
    assert sh(directories.remove(str(own))).returncode == 0
    assert (theirs / "precious").exists() and not own.exists()


@pytest.mark.parametrize("place", ["/", "/srv", "/mnt", "/etc", "/etc/x", "/usr/local", "/home/al"])
def test_places_of_the_system(place: str) -> None:
    assert directories.fault(place) is not None


@pytest.mark.parametrize("place", ["/var/lib/cbt-crypto", "/srv/cbt", "/home/al/x", "/dev/shm/x"])
def test_places_for_campaigns(place: str) -> None:
    assert directories.fault(place) is None


def test_keys_that_others_planted(tmp_path: Path) -> None:
    """A .opal file in /dev/shm would have a drive reset with it."""
    text = f"{directories.functions()}key_directory present".replace("/dev/shm", str(tmp_path))
    text = text.replace('"/run"', f'"{tmp_path}/none"')
    planted = tmp_path / "cbt-crypto"
    planted.mkdir(mode=0o700)
    assert sh(text).stdout == f"{planted}\n"
    os.chown(planted, NOBODY, NOBODY)
    assert sh(text).stdout == "\n"
    os.rename(planted, tmp_path / "real")
    os.chown(tmp_path / "real", 0, 0)
    planted.symlink_to(tmp_path / "real")
    assert sh(text).stdout == "\n"


# -- code and processes --------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["owner", "mode", "file"])
def test_a_checkout_that_others_may_write_to(tmp_path: Path, whose: str) -> None:
    beside, here = tmp_path / "cbt", tmp_path / "here"
    here.mkdir()
    for name in (
        "cbt.py", "settings.py", "common.py", "monitoring.py", "benchmarkfactory.py",
        "cluster/ceph.py", "benchmark/benchmark.py",
    ):  # fmt: skip
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).touch()
    os.environ["CBT_HOME"] = ""
    try:
        assert find(None, here, here) is not None
        if whose == "owner":
            os.chown(beside, NOBODY, NOBODY)
        elif whose == "mode":
            beside.chmod(0o777)
        else:
            os.chown(beside / "common.py", NOBODY, NOBODY)
        with pytest.raises(UsageError, match="so its code is not run"):
            find(None, here, here)
    finally:
        os.environ["CBT_HOME"] = "embedded"


def test_root_s_own_commands_carry_the_mark(tmp_path: Path, programs: Any) -> None:
    """sudo clears the environment, as the fake one does."""
    programs("id", "echo 1000")
    programs("sudo", 'shift; exec env -i PATH="$PATH" "$@"')
    text = f"{preamble('/own')}\n$SUDO sh -c 'echo \"$CBT_CRYPTO_MARK $CBT_CRYPTO_UID\"'"
    done = subprocess.run(
        ["sh", "-euc", text], capture_output=True, text=True, check=True,
        env={**os.environ, "CBT_HOST": "h"},
    )  # fmt: skip
    assert done.stdout == "/own@h 1000\n"
    hung = subprocess.Popen(
        ["sh", "-euc", f"{preamble('/own')}\n$SUDO sleep 60"], env={**os.environ, "CBT_HOST": "h"}
    )
    time.sleep(0.5)
    ended = subprocess.run(
        ["sh", "-euc", f"{preamble('/own')}\n{kill_script(('KILL',))}"],
        env={**os.environ, "CBT_HOST": "h"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert hung.wait(10) != 0


# -- files ---------------------------------------------------------------------------------------


def test_pipes_and_endless_files_keep_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    code = (
        "import sys\nfrom pathlib import Path\nfrom cbt_crypto.hosts import ceph_conf\n"
        "from cbt_crypto.plan.file import read_campaign\nfrom cbt_crypto.errors import UsageError\n"
        "for read in (read_campaign, ceph_conf.read):\n"
        "    for path in sys.argv[1:]:\n"
        "        try: read(Path(path)); sys.exit('read')\n"
        "        except UsageError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pipe"), "/dev/zero"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is not a regular file") == 4


# -- what is looked at ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["endless", "pipe"])
def test_what_a_process_called_ceph_osd_has_mapped(kind: str) -> None:
    """Root read his file to its end, or waited for his pipe."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*user, "unshare", "-Urm", "true"], check=False).returncode != 0:
        pytest.skip("needs a kernel that gives users namespaces of their own")
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shutil.copy(os.path.realpath("/usr/bin/python3"), place / "ceph-osd")
        for path in (place, place / "ceph-osd"):
            path.chmod(0o755)
            os.chown(path, NOBODY, NOBODY)
        # In a namespace of his own he may mount what he likes.
        start = f'mount -t tmpfs his /mnt && exec {place}/ceph-osd -c "$@"'
        command = [*user, "unshare", "-Urm", "sh", "-c", start, "sh", _MAPS, kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as his:
            assert his.stdout is not None and his.stdout.readline() == "up\n"
            # as if it were the first that is found
            text = environment.SCRIPT.replace("pgrep -x ceph-osd", f"echo {his.pid}")
            assert "libraries\t\n" in sh(text).stdout
            # and if it were believed
            text = f"export CBT_CRYPTO_UID={NOBODY}\n{text}"
            done = sh("ulimit -v 2000000\n" + text.replace("timeout 10", "timeout 2"))
            his.kill()
        assert "libraries\tlibcrypto.so.3" in done.stdout and "exhausted" not in done.stderr
    finally:
        shutil.rmtree(place)


_MAPS = """
import mmap, os, subprocess, sys, time
os.chdir("/mnt")
with open("libcrypto.so.3", "w+b") as file:
    file.truncate(1 << 40)
    kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
if sys.argv[1] == "pipe":
    os.mkfifo("pipe")
    subprocess.check_call(["mount", "--bind", "/mnt/pipe", "/mnt/libcrypto.so.3"])
print("up", flush=True)
time.sleep(120)
"""
