from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.lab import paths

pytestmark = pytest.mark.unit


def hold(path: Path, held: Event, done: Event) -> None:
    with paths.locked(path, "busy"):
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
    with pytest.raises(UsageError, match="busy"), paths.locked(tmp_path / "lock", "busy"):
        raise AssertionError("locked twice")
    done.set()
    process.join()
    with paths.locked(tmp_path / "lock", "busy"):
        pass


def test_a_killed_holder_holds_nothing(
    tmp_path: Path, holder: Callable[[], tuple[multiprocessing.Process, Event]]
) -> None:
    process, _ = holder()
    process.kill()
    process.join()
    with paths.locked(tmp_path / "lock", "busy"):
        pass


def test_a_lock_on_a_removed_file_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with paths.locked(path, "busy"):
        path.unlink()
        with paths.locked(path, "busy"):
            assert path.exists()


def test_too_little_space_is_an_error_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs 1048576\.0 GiB below .*/not/there, which has"):
        paths.need_space(tmp_path / "not" / "there", 2**50, "the image")
    paths.need_space(tmp_path, 1, "the image")
