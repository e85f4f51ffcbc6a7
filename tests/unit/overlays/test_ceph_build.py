"""A build of Ceph below a prefix: who may own it, what starts it, and what proves it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import OVERLAYS, ceph_build_on_host, ceph_running_on_host
from cbt_crypto.cluster_overlays.base import Seen, Transition
from cbt_crypto.cluster_overlays.ceph_build import CephBuild
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file import Campaign

pytestmark = pytest.mark.unit

MULTIARCH = os.uname().machine + "-linux-gnu"
SAYS = '#!/bin/sh\necho "$0 $* $CEPH_ARGS $LD_LIBRARY_PATH"\n'


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Packages that were unpacked; each program says how it was called."""
    root = tmp_path / "opt"
    for name in ceph_build_on_host.PROGRAMS:
        path = root / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SAYS)
        path.chmod(0o755)
    for name in ("ceph/erasure-code", "rados-classes"):
        (root / "usr/lib" / MULTIARCH / name).mkdir(parents=True)
    (root / "usr/share/ceph/mgr").mkdir(parents=True)
    return root


def test_it_is_in_the_table_and_a_rebuild() -> None:
    assert OVERLAYS["ceph_build"] is CephBuild
    ours, other = CephBuild(), CephBuild(prefix="/opt/ceph-main")
    assert ours.transition_to(other) is Transition.REBUILD
    assert other.transition_to(CephBuild(prefix="/opt/ceph-main")) is Transition.NONE


@pytest.mark.parametrize("path", ["opt/ceph", "/opt/a b", "/opt/$(id)", "/opt/ceph/", "/opt/'x"])
def test_a_prefix_is_a_plain_absolute_path(path: str) -> None:
    with pytest.raises(ValidationError):
        CephBuild(prefix=path)


def test_its_programs_start_with_what_belongs_to_them(prefix: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    ceph_build_on_host.write(str(prefix), str(folder))
    command = [folder / "ceph-osd", "-i", "3 4"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    library = f"{prefix}/usr/lib/{MULTIARCH}"
    assert said.startswith(f"{prefix}/usr/bin/ceph-osd -i 3 4 ")
    for option in (
        f"--plugin_dir={library}/ceph",
        f"--erasure_code_dir={library}/ceph/erasure-code",
        f"--osd_class_dir={library}/rados-classes",
        f"--mgr_module_path={prefix}/usr/share/ceph/mgr",
    ):
        assert f" {option}" in said
    assert f" {library}:{library}/ceph" in said


def test_a_root_file_system_starts_by_its_own_loader(prefix: Path, tmp_path: Path) -> None:
    """As what it is linked with is another C library: seen with a loader that only says so."""
    name = "lib64/ld-linux-x86-64.so.2" if os.uname().machine == "x86_64" else None
    name = name or "lib/ld-linux-aarch64.so.1"
    loader = prefix / name
    loader.parent.mkdir()
    loader.write_text(SAYS)
    loader.chmod(0o755)
    folder = tmp_path / "build"
    ceph_build_on_host.write(str(prefix), str(folder))
    said = subprocess.run([folder / "ceph-mon", "x"], capture_output=True, text=True, check=True)
    words = said.stdout.split()
    called = Path(words[0])
    assert (called.name, called.resolve()) == ("ceph-mon", loader)
    assert words[1] == "--library-path"
    assert words[3:7] == ["--argv0", "ceph-mon", f"{prefix}/usr/bin/ceph-mon", "x"]


def _refusal(prefix: Path, as_root: bool = True) -> str:
    with pytest.raises(ceph_build_on_host.Refused) as refused:
        ceph_build_on_host.check_owners(str(prefix), as_root)
        ceph_build_on_host.layout(str(prefix))
    return str(refused.value)


@pytest.fixture
def as_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests stands for root: only root can make files of root's."""
    monkeypatch.setattr(ceph_build_on_host, "may_own", lambda as_root: {os.geteuid(), 0})


def _elf(tag: int, searched: str) -> bytes:
    """A file of 64 bits with a loaded part and a dynamic one, which names those directories."""
    texts = b"\0" + searched.encode() + b"\0"
    at, dynamic = 64 + 2 * 56, struct.pack("=6Q", 5, 0x40000, tag, 1, 0, 0)
    parts = [(1, 4, at, 0x40000, 0, len(texts), len(texts), 1),
             (2, 4, at + len(texts), 0x50000, 0, len(dynamic), len(dynamic), 1)]  # fmt: skip
    head = struct.pack(
        "=16sHHIQQQIHHHHHH", b"\x7fELF\x02", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    return head + b"".join(struct.pack("=IIQQQQQQ", *part) for part in parts) + texts + dynamic


def test_what_a_real_program_searches_is_what_readelf_says(tmp_path: Path) -> None:
    """Debian's qemu and Ceph have some; where binutils is missing, its own programs have none."""
    programs = [Path("/usr/bin") / name for name in ("ceph-osd", "python3", "fio", "sh")]
    for program in filter(Path.is_file, programs):
        mine = list(ceph_build_on_host.searched_first(os.path.realpath(program)))
        assert all(place.startswith("/usr/lib") for place in mine), (program, mine)
        if shutil.which("readelf"):
            said = subprocess.check_output(["readelf", "-dW", program], text=True)
            found = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", said)
            assert mine == [place for text in found for place in text.split(":")]


def test_clients_ask_whose_libraries_they_are_before_fio_loads_them(
    tmp_path: Path, programs: Callable[[str, str], Path]
) -> None:
    """A local user of a client alone could put code of his there, which root's fio loaded."""
    prefix = tmp_path / "opt"
    (prefix / "lib").mkdir(parents=True)
    programs("fio", f"#!/bin/sh\ntouch {tmp_path}/loaded\n")
    site = Site("/t", "/t/c", "h", ("client0",), (), ("h",), ("h",), active_clients=("client0",))
    _, need = CephBuild(prefix=str(prefix), clients=True).requirements(site)
    assert need.hosts == ("client0",)

    def judged() -> Any:
        text = f"set -eu\nSUDO=\n{need.script}"
        said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
        return need.judge(said.stdout)

    assert judged() is None and (tmp_path / "loaded").exists()
    (tmp_path / "loaded").unlink()
    (prefix / "lib").chmod(0o777)
    assert f"{prefix}/lib can be written to by others" in judged()
    assert not (tmp_path / "loaded").exists()


@pytest.mark.usefixtures("as_owner")
class TestWhoCouldChangeIt:
    def test_nobody(self, prefix: Path) -> None:
        ceph_build_on_host.check_owners(str(prefix), True)
        assert ceph_build_on_host.layout(str(prefix)).loader is None

    @pytest.mark.parametrize("name", ["usr/bin/ceph-osd", "usr/lib", "usr/share/ceph/mgr", ""])
    def test_others_may_write(self, prefix: Path, name: str) -> None:
        (prefix / name).chmod(0o777)
        assert (
            "can be written to by others, and would be run; chown it to root, and chmod go-w"
            in _refusal(prefix)
        )

    @pytest.mark.parametrize("name", ["share", "usr/share", "usr/local", "libx/ceph"])
    def test_what_leads_to_a_part_may_be_written_to(self, prefix: Path, name: str) -> None:
        """The parts were asked, and whoever could write between could rename them."""
        for part in ("usr/local/lib", "share/ceph/mgr", "libx/ceph/erasure-code"):
            (prefix / part).mkdir(parents=True)
        ceph_build_on_host.check_owners(str(prefix), True)
        (prefix / name).chmod(0o777)
        assert f"{prefix}/{name} can be written to by others" in _refusal(prefix)

    def test_a_link_within_it_leads_to_what_others_write(self, prefix: Path) -> None:
        private, programs = prefix / "private", prefix / "release/bin"
        private.mkdir()
        programs.mkdir(parents=True)
        (private / "libceph-common.so.2").write_text("")
        (prefix / "usr/lib/libceph-common.so.2").symlink_to("../../private/libceph-common.so.2")
        (prefix / "bin").symlink_to("release/bin")
        ceph_build_on_host.check_owners(str(prefix), True)
        for place in (private / "libceph-common.so.2", programs, programs.parent):
            place.chmod(0o777)
            assert f"{place} can be written to by others" in _refusal(prefix)
            place.chmod(0o755)

    @pytest.mark.parametrize("tag", [15, 29], ids=["DT_RPATH", "DT_RUNPATH"])
    def test_libraries_that_a_program_searches_elsewhere(self, prefix: Path, tag: int) -> None:
        """DT_RPATH counts more than LD_LIBRARY_PATH, and a copied build keeps its own."""
        program = prefix / "usr/bin/ceph-osd"
        for good in ("$ORIGIN/../lib", "${ORIGIN}/../lib:/usr/lib/x86_64-linux-gnu/ceph"):
            program.write_bytes(_elf(tag, good))
            ceph_build_on_host.check_owners(str(prefix), True)
        for bad in ("/home/joe/build/lib", f"{prefix}/usr/lib:/tmp/x", "$ORIGIN/../../../x", "lib",
                    "/library/ceph", "/usr/libshared"):  # fmt: skip
            program.write_bytes(_elf(tag, bad))
            assert f"{program} has libraries of {bad.split(':')[-1]} loaded" in _refusal(prefix)

    def test_its_parent_may_be_written_to(self, prefix: Path) -> None:
        prefix.parent.chmod(0o777)
        assert f"can be replaced by those who may write to {prefix.parent}" in _refusal(prefix)
        prefix.parent.chmod(0o1777)
        ceph_build_on_host.check_owners(str(prefix), True)

    def test_a_library_is_a_link_to_where_others_write(self, prefix: Path, tmp_path: Path) -> None:
        outside = tmp_path / "theirs" / "librados.so.2"
        outside.parent.mkdir()
        outside.write_text("")
        outside.parent.chmod(0o777)
        (prefix / "usr/lib/librados.so.2").symlink_to(outside)
        assert f"may write to {outside.parent}" in _refusal(prefix)

    def test_a_folder_of_modules_leads_to_where_others_write(
        self, prefix: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "theirs"
        outside.mkdir()
        (outside / "module.py").write_text("")
        (prefix / "usr/lib/modules").symlink_to(outside)
        ceph_build_on_host.check_owners(str(prefix), True)
        (outside / "module.py").chmod(0o666)
        assert f"{outside}/module.py can be written to by others" in _refusal(prefix)

    def test_the_way_leads_through_a_folder_of_others(self, prefix: Path, tmp_path: Path) -> None:
        real, between = tmp_path / "real.so", tmp_path / "between"
        real.write_text("")
        between.mkdir()
        (between / "link.so").symlink_to(real)
        (prefix / "usr/lib/librados.so.2").symlink_to(between / "link.so")
        ceph_build_on_host.check_owners(str(prefix), True)
        between.chmod(0o777)
        assert f"leads through {between}, where others may write" in _refusal(prefix)

    def test_what_root_file_systems_have_is_no_harm(self, prefix: Path) -> None:
        """Seen in images of Debian: units that are masked, and links that lead nowhere."""
        (prefix / "usr/lib/x.service").symlink_to("/dev/null")
        (prefix / "usr/lib/libblas.so.3").symlink_to("/etc/alternatives/none-such")
        ceph_build_on_host.check_owners(str(prefix), True)

    def test_a_folder_that_leads_elsewhere(self, prefix: Path, tmp_path: Path) -> None:
        (tmp_path / "theirs").mkdir()
        (prefix / "usr/sbin").symlink_to(tmp_path / "theirs")
        assert "which is not below" in _refusal(prefix)

    def test_it_is_a_link(self, prefix: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(prefix)
        assert f"is reached through a link; name {prefix}" in _refusal(tmp_path / "link")

    def test_a_program_is_missing(self, prefix: Path) -> None:
        (prefix / "usr/bin/ceph-osd").unlink()
        assert "has no ceph-osd in bin or usr/bin" in _refusal(prefix)

    def test_it_is_not_there(self, tmp_path: Path) -> None:
        assert "is no directory" in _refusal(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_refused(prefix: Path) -> None:
    os.chown(prefix / "usr/bin/ceph-mgr", 12345, -1)
    assert "belongs to uid 12345, and would be run" in _refusal(prefix)


def _about(version: str, *files: str, exe: str = "/usr/bin/ceph-osd") -> dict[str, Any]:
    return {"pid": 1, "uid": 0, "exe": exe, "mapped": [exe, *files], "version": version}


def _judged(overlay: CephBuild, site: Site, daemons: Mapping[str, Any]) -> Any:
    outputs = {site.osd_hosts[0]: json.dumps(daemons)}
    return overlay.judge(site, outputs, outputs)


@pytest.fixture
def place(site_of: Callable[..., Site], osd: Callable[..., Osd]) -> Site:
    return site_of(osd(0, "node2", is_file=True))


OURS = {"mon.a": _about("16.2.15"), "mgr.x": _about("16.2.15"), "osd.0": _about("16.2.15")}
MAIN = {name: _about("20.2.4", "/opt/m/lib/librados.so.2", exe="/opt/m/bin/ceph-osd")
        for name in OURS}  # fmt: skip


def test_each_is_proved_by_its_files_and_its_own_word(place: Site) -> None:
    verdict = _judged(CephBuild(version="16.2"), place, OURS)
    assert verdict.proved
    assert verdict.reason == "3 daemons run Ceph 16.2.15 from /usr/bin"
    assert _judged(CephBuild(prefix="/opt/m", version="20.2"), place, MAIN).proved


@pytest.mark.parametrize(
    ("daemons", "sentence"),
    [
        (OURS, "mon.a: it runs /usr/bin/ceph-osd, which is not below /opt/m"),
        ({**MAIN, "osd.0": _about("20.2.4", "/usr/lib/librados.so.2", exe="/opt/m/bin/ceph-osd")},
         "osd.0: it runs /usr/lib/librados.so.2, which is not below /opt/m"),
        ({**MAIN, "osd.0": _about("20.2.5", exe="/opt/m/x")}, "several versions: 20.2.4, 20.2.5"),
        ({**MAIN, "osd.0": _about("20.2.4", exe="/opt/m/x (deleted)")},
         "osd.0: /opt/m/x was replaced while it ran"),
        ({**MAIN, "osd.0": {"error": "no such process"}}, "could not be read: no such pro"),
        ({"mon.a": MAIN["mon.a"]}, "osd.0 did not say which build it is of"),
        ({"osd.0": MAIN["osd.0"]}, "no monitor said which build it is of"),
    ],
)  # fmt: skip
def test_what_contradicts_it(place: Site, daemons: Any, sentence: str) -> None:
    verdict = _judged(CephBuild(prefix="/opt/m"), place, daemons)
    assert not verdict.proved
    assert sentence in verdict.reason


@pytest.mark.parametrize(
    ("version", "proved"), [("20", True), ("20.2.4", True), ("2", False), ("18.2", False)]
)
def test_the_version_that_was_asked_for(place: Site, version: str, proved: bool) -> None:
    assert _judged(CephBuild(prefix="/opt/m", version=version), place, MAIN).proved is proved


@pytest.mark.parametrize("answer", ["'no such command'", "{'release': 'reef'}", "[]"])
def test_a_daemon_that_does_not_tell_its_version_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    for name in ("mon.a", "osd.0"):
        (tmp_path / f"{name}.pid").write_text(str(os.getpid()))
    answers = {"mon.a": ast.literal_eval(answer), "osd.0": {"version": "20.2.4"}}
    monkeypatch.setattr(ceph_running_on_host, "ask", lambda path, _: answers[Path(path).stem])
    monkeypatch.setattr("sys.argv", ["look", json.dumps(str(tmp_path))])
    ceph_running_on_host.main()
    told = json.loads(capsys.readouterr().out)
    assert told["mon.a"] == {"error": "its admin socket does not tell the version"}
    assert told["osd.0"]["version"] == "20.2.4"


def test_files_of_ceph_are_told_from_others(tmp_path: Path) -> None:
    """By the kernel's list of this very process, which has mapped one of each."""
    import mmap  # noqa: PLC0415

    held = []
    for name in ("librados.so.2.0.0", "libc-2.36.so"):
        (tmp_path / name).write_bytes(b"x" * 4096)
        with open(tmp_path / name, "rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    assert ceph_running_on_host.mapped(str(os.getpid())) == [str(tmp_path / "librados.so.2.0.0")]
    (tmp_path / "librados.so.2.0.0").unlink()
    assert ceph_running_on_host.mapped(str(os.getpid())) == [
        f"{tmp_path}/librados.so.2.0.0 (deleted)"
    ]


@pytest.mark.parametrize("note", [
    b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0", b"\0\0\0\x04\0\0\0\x08\0\0\0\x03GNU\0",
])  # fmt: skip
def test_builds_of_one_version_are_told_apart(tmp_path: Path, note: bytes) -> None:
    file = tmp_path / "ceph-osd"
    file.write_bytes(b"\x7fELF" + bytes(700) + note + bytes(range(8)) + b"\xff" * 9)
    assert ceph_running_on_host.build_of(str(file)) == "0001020304050607"
    file.write_bytes(b"\x7fELF")
    assert ceph_running_on_host.build_of(str(file)) == "4 bytes"


def _seen_fault(overlay: CephBuild, site: Site, *looks: Any) -> Any:
    seen = {"c0": [Seen(look, float(n)) for n, look in enumerate(looks)]}
    assert overlay.evidence_seen(site, seen)["client_libraries"]["c0"] == sorted(
        {path for look in looks for path in look}
    )
    return overlay.judge_seen(site, seen)


def test_clients_are_proved_by_what_they_had_mapped(place: Site) -> None:
    ours, theirs = "/opt/m/lib/librbd.so.1", "/usr/lib/librbd.so.1"
    clients, daemons = CephBuild(prefix="/opt/m", clients=True), CephBuild(prefix="/opt/m")
    assert _seen_fault(clients, place, [], [ours], []) is None
    assert _seen_fault(daemons, place, [], [theirs]) is None
    assert _seen_fault(CephBuild(clients=True), place, [theirs]) is None, "it names no prefix"
    assert _seen_fault(clients, place, [ours], [ours, theirs], [ours]) == (
        f"a client process on c0: it runs {theirs}, which is not below /opt/m"
    )
    assert "was replaced while it ran" in _seen_fault(clients, place, [f"{ours} (deleted)"])
    assert _seen_fault(clients, place, [], []) == (
        "no client process was seen on c0 have Ceph's libraries mapped"
    )


def test_what_a_client_loads_at_run_time_is_seen(tmp_path: Path) -> None:
    """Of a real process called fio that is linked with nothing of Ceph, and so says ldd."""
    library, fio = tmp_path / "librbd.so.1.19.0", tmp_path / "fio"
    library.write_bytes(b"x" * 4096)
    fio.symlink_to(os.path.realpath(sys.executable))
    load = (
        "import mmap, sys\nwith open(sys.argv[1], 'rb') as file:\n"
        "    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "print('ready', flush=True)\nsys.stdin.read()"
    )
    asked = {"programs": ["fio"], "tmp_dir": str(tmp_path)}
    environment = {**os.environ, "CBT_CRYPTO_MARK": f"{tmp_path}@here"}
    with subprocess.Popen(
        [fio, "-c", load, library], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout
        process.stdout.readline()
        linked = subprocess.run(["ldd", fio], capture_output=True, text=True, check=True).stdout
        assert "librbd" not in linked
        assert ceph_running_on_host.see(asked) == [str(library)]
        process.communicate()
    assert ceph_running_on_host.see(asked) == []


def test_libraries_for_clients_are_refused_where_the_kernel_does_all_io(
    campaign_of: Callable[..., Campaign],
) -> None:
    build = {"prefix": "/opt/ceph-main", "clients": True}
    configurations = {"Ours": {}, "Main": {"ceph_build": build}}
    with pytest.raises(UsageError) as refused:
        campaign_of(
            cluster={"configurations": configurations},
            benchmarks={"rbd_single_client": ..., "rbd_krbd": {"vol_size": 64}},
        )
    (sentence,) = str(refused.value).splitlines()
    assert "campaign.yaml" in sentence
    assert "Main.ceph_build.clients: is not supported by rbd_krbd, which works on" in sentence


@pytest.mark.parametrize(
    ("build", "benchmarks"),
    [
        ({"prefix": "/opt/m", "clients": True}, {"rbd_single_client": {}}),
        ({"prefix": "/opt/m"}, {"rbd_krbd": {}}),
        ({"clients": True}, {"rbd_krbd": {}}),
        ({"prefix": "/opt/m", "clients": True}, {"rbd_krbd": {"configuration": "Ours"}}),
    ],
)
def test_other_builds_and_loads_go_together(
    campaign_of: Callable[..., Campaign], build: dict[str, Any], benchmarks: dict[str, Any]
) -> None:
    configurations = {"Ours": {}, "Main": {"ceph_build": build}}
    campaign_of(cluster={"configurations": configurations},
                benchmarks={"rbd_single_client": ..., **benchmarks})  # fmt: skip
