from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.directories import cache_dir
from cbt_crypto.lab import lifecycle, shape
from cbt_crypto.lab.command import lab

pytestmark = pytest.mark.unit


def hold(path: Path, held: Event, done: Event) -> None:
    with shape.locked(path, "busy"):
        held.set()
        done.wait(30)


@pytest.fixture
def holder(tmp_path: Path) -> Callable[[], tuple[multiprocessing.Process, Event]]:
    def start() -> tuple[multiprocessing.Process, Event]:
        held, done = multiprocessing.Event(), multiprocessing.Event()
        process = multiprocessing.Process(target=hold, args=(tmp_path / "lock", held, done))
        process.start()
        assert held.wait(30)
        return process, done

    return start


def test_one_at_a_time(
    tmp_path: Path, holder: Callable[[], tuple[multiprocessing.Process, Event]]
) -> None:
    process, done = holder()
    with pytest.raises(UsageError, match="busy"), shape.locked(tmp_path / "lock", "busy"):
        raise AssertionError("locked twice")
    done.set()
    process.join()
    with shape.locked(tmp_path / "lock", "busy"):
        pass


def test_a_killed_holder_holds_nothing(
    tmp_path: Path, holder: Callable[[], tuple[multiprocessing.Process, Event]]
) -> None:
    process, _ = holder()
    process.kill()
    process.join()
    with shape.locked(tmp_path / "lock", "busy"):
        pass


def test_a_child_that_a_killed_holder_leaves_for_a_moment_locks_nobody_out(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = subprocess.Popen(["sleep", "0.4"], pass_fds=(file.fileno(),))
    with shape.locked(tmp_path / "lock", "busy"):
        assert child.wait(10) == 0


def test_a_lock_on_a_removed_file_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with shape.locked(path, "busy"):
        path.unlink()
        with shape.locked(path, "busy"):
            assert path.exists()


def test_too_little_space_is_an_error_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs 1048576\.0 GiB below .*/not/there, which has"):
        shape.need_space(tmp_path / "not" / "there", 2**50, "the image")
    shape.need_space(tmp_path, 1, "the image")


@pytest.mark.parametrize("how", ["his", "his parent", "open", "link to his"])
def test_a_cache_of_another_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As sudo leaves $HOME: his lab.json and ssh_config were read, and his image was started."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else too")
    base, cache = tmp_path / "cache", tmp_path / "cache" / "cbt-crypto"
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    cache.mkdir(parents=True)
    assert cache_dir() == cache
    if how == "open":
        cache.chmod(0o777)
    elif how == "link to his":
        cache.rename(tmp_path / "his")
        os.chown(tmp_path / "his", 65534, 65534)
        cache.symlink_to(tmp_path / "his")
    else:
        os.chown(cache if how == "his" else base, 65534, 65534)
    for words in (["down"], ["status"], ["up", "--kind", "namespace"], ["ssh", "node0"]):
        done = CliRunner().invoke(lab, words)
        assert isinstance(done.exception, (UsageError, SystemExit)), words
        if isinstance(done.exception, UsageError):
            assert "can be written to by another user" in str(done.exception)


@contextlib.contextmanager
def photo_mounted(own: Path, there: Path) -> Iterator[Path]:
    """Somebody's directory, which has a photo, bound to another place; the photo's own path."""
    own.mkdir()
    there.mkdir(parents=True)
    photo = own / "photo"
    photo.touch()
    if subprocess.run(["mount", "--bind", own, there], check=False).returncode != 0:
        pytest.skip("may not mount")
    try:
        yield photo
    finally:
        subprocess.run(["umount", there], check=True)


@pytest.mark.parametrize("place", [".", "node0/keep it"])
@pytest.mark.parametrize("words", [["down"], ["up", "--kind", "vm"]])
def test_what_is_mounted_in_a_lab_is_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, words: list[str]
) -> None:
    """`lab down` emptied what somebody had bound there, and ended in a traceback."""
    monkeypatch.setattr(lifecycle, "find", lambda name: None)
    monkeypatch.setattr("cbt_crypto.lab.vm.check_machine", lambda shape: None)
    there = shape.lab_dir("default") / place
    with photo_mounted(tmp_path / "own", there) as photo:
        done = CliRunner().invoke(lab, words)
    assert isinstance(done.exception, (UsageError, SystemExit)), done.exception
    assert f"{there.resolve()} is mounted in lab default's directory; unmount it" in (
        f"{done.exception}{done.output}"
    )
    assert photo.exists()


@pytest.mark.parametrize("place", [".", "0123456789ab/root/home"])
def test_what_is_mounted_in_an_image_is_not_emptied(tmp_path: Path, place: str) -> None:
    """As who looks into an image by chroot binds /home and /dev there: `--image` emptied them."""
    there = cache_dir() / "images" / place
    with photo_mounted(tmp_path / "own", there) as photo:
        done = CliRunner().invoke(lab, ["down", "--image"])
    assert isinstance(done.exception, UsageError), done.exception
    assert f"{there.resolve()} is mounted in an image of labs; unmount it" in str(done.exception)
    assert photo.exists()
    assert CliRunner().invoke(lab, ["down", "--image"]).exit_code == 0
    assert not (cache_dir() / "images").exists()


def test_the_image_stays_while_a_lab_starts() -> None:
    """`lab down --image` in another terminal removed it while it was built: a traceback there."""
    built = cache_dir() / "images" / "0123456789ab.unfinished"
    built.mkdir(parents=True)
    with shape.locked(shape.lab_dir("other").with_suffix(".lock"), "busy"):
        done = CliRunner().invoke(lab, ["down", "--image"])
    assert "another lab up or lab down is at work on lab other" in str(done.exception)
    assert built.exists()
    assert CliRunner().invoke(lab, ["down", "--image"]).exit_code == 0
    assert not built.exists()
