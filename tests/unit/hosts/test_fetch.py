"""What a compromised host may send for the files of a cell: any bytes at all."""

from __future__ import annotations

import io
import math
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.errors import HostError
from cbt_crypto.hosts import fetch
from cbt_crypto.hosts.fetch import Unfit, unpack

pytestmark = pytest.mark.unit


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    stream.seek(0)
    return stream


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "name",
    ["run/../../evil", "../evil", "/etc/evil", "run/..", "other/evil", "run/" + "a/" * 40, "."],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """pdsh's receiver of rpdcp wrote any file of the head's user."""
    with pytest.raises(Unfit):
        stream = archive(member("run/a", b"x"), member(name, b"evil"))
        unpack(stream, tmp_path / "in" / "run", math.inf)
    assert not [path for path in tmp_path.rglob("*") if path.name == "evil"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_pipes_and_devices_are_left_out(tmp_path: Path, kind: bytes) -> None:
    odd = member("run/odd", type=kind, linkname="/etc", devmajor=8, devminor=0)
    stream = archive(odd, member("run/a", b"x"))
    assert unpack(stream, tmp_path / "in", math.inf) == ["run/odd"]
    assert below(tmp_path / "in") == ["a"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    link = member("run/d", type=tarfile.SYMTYPE, linkname=str(tmp_path / "victim"))
    unpack(archive(link, member("run/d/x", b"evil")), tmp_path / "in", math.inf)
    assert below(tmp_path / "victim") == []
    assert (tmp_path / "in/d/x").read_bytes() == b"evil"


def test_no_mode_gives_away_more_than_reading(tmp_path: Path) -> None:
    stream = archive(member("run/a", b"x", mode=0o6777), member("run/b", mode=0))
    unpack(stream, tmp_path / "in", math.inf)
    modes = [stat.S_IMODE((tmp_path / "in" / name).stat().st_mode) for name in "ab"]
    assert modes == [0o755, 0o600]


def test_a_file_that_comes_twice_is_refused(tmp_path: Path) -> None:
    stream = archive(member("run/a", b"x"), member("run/a", b"y"))
    with pytest.raises(OSError, match="exists"):
        unpack(stream, tmp_path / "in", math.inf)


def test_a_torn_stream_is_an_error(tmp_path: Path) -> None:
    whole = archive(member("run/a", os.urandom(20_000))).getvalue()
    for number, length in enumerate((0, 100, 511, 600, 5000, 10_752)):
        with pytest.raises(Unfit):
            unpack(io.BytesIO(whole[:length]), tmp_path / str(number), math.inf)


def test_the_copies_are_those_of_the_host(tmp_path: Path, shims: Any) -> None:
    source = tmp_path / "run dir" / "id-1"
    (source / "collectl" / "empty").mkdir(parents=True)
    (source / "collectl" / "x.raw").write_bytes(os.urandom(100_000))
    (source / "a b").write_text("text")
    os.utime(source / "a b", (1_000_000_000, 1_000_000_000))
    (tmp_path / "in").mkdir()
    handle = common.rpdcp("node1,root@node2", "-r", str(source), str(tmp_path / "in"))
    assert (handle.wait(), handle.communicate()) == (0, ("", ""))
    for host in ("node1", "node2"):
        arrived = tmp_path / "in" / f"id-1.{host}"
        assert below(arrived) == below(source)
        assert (arrived / "collectl/x.raw").read_bytes() == (source / "collectl/x.raw").read_bytes()
        assert (arrived / "a b").stat().st_mtime == 1_000_000_000
    assert shims.calls("rpdcp", "scp") == []


def test_a_greeting_is_no_part_of_the_stream_and_its_absence_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    text = fetch.script(str(tmp_path / "a"), "@mark")
    assert fetch.fetch(["sh", "-c", f"echo Welcome; {text}"], "@mark", tmp_path / "in") is None
    assert (tmp_path / "in").read_text() == "x"
    missing = fetch.fetch(["sh", "-c", "yes | head -c 200000; exit 3"], "@mark", tmp_path / "no")
    assert missing is not None and missing.startswith("nothing came")
    failed = fetch.fetch(
        ["sh", "-c", fetch.script("/nonexistent/x", "@mark")], "@mark", tmp_path / "no"
    )
    assert failed is not None and "/nonexistent" in failed


def test_a_host_cannot_fill_the_head_s_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could, and the campaign ended with everybody else's results unwritten."""
    free = shutil.disk_usage(tmp_path)._replace(free=8 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with (tmp_path / "much").open("wb") as file:
        file.truncate(3 << 20)
    command = ["sh", "-c", fetch.script(str(tmp_path / "much"), "@mark")]
    assert fetch.fetch(command, "@mark", tmp_path / "in") is None
    said = fetch.fetch(command, "@mark", tmp_path / "of two" / "in", hosts=2)
    assert said == "more than 2 MiB, its part of the free space"
    assert not (tmp_path / "of two" / "in").exists()


def test_one_host_s_failure_is_told_by_its_name(tmp_path: Path, shims: Any) -> None:
    shims.dead("node2")
    (tmp_path / "run").mkdir()
    (tmp_path / "in").mkdir()
    handle = common.rpdcp("node1,node2", "-r", str(tmp_path / "run"), str(tmp_path / "in"))
    _, errors = handle.communicate(60)
    assert handle.returncode == 1
    assert errors == ("node2: nothing came: ssh: connect to host node2 port 22: No route to host\n")


@pytest.mark.parametrize("kind", ["long", "torn"])
def test_a_host_s_name_for_a_file_fails_its_cell_alone(
    tmp_path: Path, shims: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """`File name too long` ended the whole campaign, and what had come stayed in the archive."""
    monkeypatch.setattr(common.settings, "getnodes", lambda *roles: "node1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ("z" * 250)).write_text("x")
    if kind == "torn":
        monkeypatch.setattr(fetch, "script", lambda path, mark: f"echo; echo {mark}; echo x")
    with pytest.raises(HostError, match="too long" if kind == "long" else "nothing came"):
        common.sync_files(str(tmp_path / "run"), str(tmp_path / "cell"))
    assert not list((tmp_path / "cell").iterdir())


def test_a_thousand_long_names_in_a_row_are_a_torn_stream(tmp_path: Path) -> None:
    """tarfile reads them recursively: it ended in a trace, and what had come before was kept."""
    long, _ = member("././@LongLink", b"top\0", type=tarfile.GNUTYPE_LONGNAME)
    names = (long.tobuf(tarfile.GNU_FORMAT) + b"top\0".ljust(512, b"\0")) * 2000
    first, _ = member("top", type=tarfile.DIRTYPE)
    (tmp_path / "tar").write_bytes(b"m\n" + first.tobuf(tarfile.GNU_FORMAT) + names)
    problem = fetch.fetch(["cat", str(tmp_path / "tar")], "m", tmp_path / "in")
    assert problem is not None and problem.startswith("a damaged stream")
    assert not (tmp_path / "in").exists()


def test_a_part_of_a_host_s_files_is_not_taken_for_all(
    tmp_path: Path, shims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came was kept where the program that copies ended in the middle."""
    monkeypatch.setattr(common.settings, "getnodes", lambda *roles: "node1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").write_text("x")
    killed = f"{shlex.join(fetch.program())}; kill -9 $$"
    monkeypatch.setattr(fetch, "program", lambda: ["sh", "-c", killed])
    with pytest.raises(HostError, match="a part came"):
        common.sync_files(str(tmp_path / "run"), str(tmp_path / "cell"))
    assert not list((tmp_path / "cell").iterdir())


def test_nothing_to_fetch_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cbt_crypto.hosts.fetch"], input="[]", text=True, check=False
    )
    assert done.returncode == 0


def test_one_host_cannot_send_another_s_results(
    tmp_path: Path, shims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `lan` calls `output.0.osd1` was kept in the place of `output.0` of osd1.lan."""
    monkeypatch.setattr(common.settings, "getnodes", lambda *roles: "osd1.lan,lan")
    (tmp_path / "run").mkdir()
    for name in ("output.0", "output.0.osd1"):
        (tmp_path / "run" / name).write_text(name)
    with pytest.raises(HostError, match=r"lan: keep 'output\.0\.osd1'.*another host has sent that"):
        common.sync_files(str(tmp_path / "run"), str(tmp_path / "cell"))
    assert (tmp_path / "cell" / "output.0.osd1.lan").read_text() == "output.0"


def test_a_host_that_hangs_ends_every_step(
    tmp_path: Path, programs: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mkdir` on a dead file system kept a campaign, and its tear-down, for ever."""
    monkeypatch.setattr(fetch, "COLLECT_S", 1)
    monkeypatch.setattr(common.settings, "getnodes", lambda *roles: "localhost")
    programs("mkdir", "exec sleep 20")
    began = time.monotonic()
    with pytest.raises(HostError):
        common.make_remote_dir(str(tmp_path / "x"))
    assert time.monotonic() - began < 15


def test_a_host_s_tape_is_not_written_to(tmp_path: Path) -> None:
    """Without -f, tar writes to $TAPE: on a host for backups, over what is on it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_text("x")
    tape = tmp_path / "tape"
    tape.write_text("a backup")
    command = ["sh", "-c", fetch.script(str(tmp_path / "run"), "@mark")]
    printed = subprocess.check_output(command, env={**os.environ, "TAPE": str(tape)})
    assert tape.read_text() == "a backup"
    assert b"run/a" in printed


def test_a_negative_size_makes_no_room_for_more(tmp_path: Path) -> None:
    stream = archive(
        member("run/d", type=tarfile.DIRTYPE, pax_headers={"size": str(-(10**15))}),
        member("run/a", b"x" * 4096),
    )
    with pytest.raises(Unfit, match="more than 0 MiB"):
        unpack(stream, tmp_path / "run", 1024)
