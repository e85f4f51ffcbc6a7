"""Processes, mounts and sockets of other users: their names are no text, their marks no proof."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from cbt_crypto.engine.embedded import common
from cbt_crypto.hosts import counter_sampler_on_host, directories, recorder_on_host, samplers, shell
from cbt_crypto.hosts.clients_on_host import Clients
from cbt_crypto.hosts.devices.identity_on_host import writers
from cbt_crypto.hosts.devices.opened_on_host import find_process
from cbt_crypto.hosts.directory_on_host import Refused
from cbt_crypto.hosts.remote import Remote, kill_script
from cbt_crypto.hosts.site import Site
from cbt_crypto.hosts.trust_on_host import is_believed
from cbt_crypto.run import environment, hold_on_host
from cbt_crypto.run.preflight import survey
from cbt_crypto.run.preflight.survey import LoadAverage
from cbt_crypto.run.targets import sockets_on_host

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
LET_GO = str(ROOT / "tests" / "programs" / "let_go.sh")
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
#: Takes a name, which may be of any bytes, and waits.
NAMED = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0)
print("up", flush=True)
time.sleep(120)
"""
#: Is called ceph-osd, and answers at a socket as osd.0 of the cluster `f00`.
ANSWERS = """
import ctypes, json, socket, struct, sys
ctypes.CDLL(None).prctl(15, b"ceph-osd", 0, 0, 0)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(8)
print("up", flush=True)
said = json.dumps({"cluster_fsid": "f00", "whoami": 0}).encode()
while True:
    client = server.accept()[0]
    try:
        client.recv(100)
        client.sendall(struct.pack(">I", len(said)) + said)
    except OSError:
        pass
    client.close()
"""
#: Starts itself again and again until it is that old, each time as another process.
AGAIN = """
import os, time
print("up", flush=True)
ends = time.monotonic() + 15
while time.monotonic() < ends:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""
#: Nobody's process, of which the kernel keeps whoever reads its environment, command line or maps
#: waiting: a thread of it reads a file of a FUSE file system by its own memory, without an answer.
#: The first word is where to mount that; fusermount3 mounts so for everybody.
UNANSWERED = """
import ctypes, mmap, os, signal, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
folder, *is_mapper = sys.argv[1:]

def nobody():
    os.setgroups([]), os.setresgid(*[65534] * 3), os.setresuid(*[65534] * 3)

def attributes(inode, mode):
    return struct.pack("<6Q10I", inode, 4096, 8, *[0] * 6, mode, 1, 65534, 65534, 0, 4096, 0)

def answer(request, node):
    top, file = attributes(1, 0o40755), attributes(2, 0o100644)
    if request == 26:
        return 0, struct.pack("<4I2H2I2H2I12H", 7, 31, 0, 0, 1, 1, 4096, 1, 1, *[0] * 15)
    if request == 1:
        return 0, struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + file
    if request == 3:
        return 0, struct.pack("<Q2I", 3600, 0, 0) + (top if node == 1 else file)
    return (0, struct.pack("<Q2i", 1, 0, 0)) if request == 14 else (-38, b"")

if is_mapper:
    libc.prctl(15, b"ceph-osd", 0, 0, 0)
    memory, file = os.open("/proc/self/mem", os.O_RDONLY), os.open(folder + "/f", os.O_RDONLY)
    shared = os.memfd_create("x")
    os.truncate(shared, 4096)
    kept = mmap.mmap(shared, 4096)
    at = libc.mmap(None, 4096, 1, 2, file, 0)
    # The second one waits for the lock that the first one has, and all others behind it.
    second = lambda: (time.sleep(0.3), libc.mmap(None, 4096, 1, 0x22, -1, 0))
    for look in (second, lambda: os.pread(memory, 16, at)):
        threading.Thread(target=look, daemon=True).start()
    time.sleep(0.6)
    os.write(1, b"up\\n")
    time.sleep(60)
    sys.exit()
words = open("/proc/self/cmdline").read().split("\\0")[:-1]
try:
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=65534,group_id=65534".encode()
    if libc.mount(b"x", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno())
except OSError:
    print("up", flush=True)
    sys.exit()
if os.fork():
    nobody()
    os.execv(words[0], [*words, "map"])
nobody()
libc.prctl(1, 9, 0, 0, 0)
signal.alarm(60)
while True:
    _, request, unique, node = struct.unpack_from("<2I2Q", os.read(fuse, 1 << 20))
    if request not in (2, 15, 36, 42):
        error, body = answer(request, node)
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
"""
#: Has six hundred children.
MANY = """
import ctypes, os, time
for _ in range(600):
    if not os.fork():
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
        time.sleep(60)
        os._exit(0)
print("up", flush=True)
time.sleep(60)
"""
#: Starts a process with a mark, whose number another user's process has as soon as it has ended.
REUSED = """
import ctypes, os, subprocess, sys, time
ours = subprocess.Popen(["/bin/sleep", "60"], env={"CBT_CRYPTO_MARK": sys.argv[1]}, stdout=2)
print("up", flush=True)
ours.wait()
his = 0
while his != ours.pid:
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(ours.pid - 1))
    his = os.fork()
    if his == 0:
        if os.getpid() == ours.pid:
            os.setuid(65534)
            ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
            time.sleep(60)
        os._exit(0)
    if his != ours.pid:
        os.waitpid(his, 0)
print("his", flush=True)
time.sleep(60)
"""
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, to be somebody else too")


@pytest.fixture
def run(start_child: Callable[..., subprocess.Popen[str]]) -> Run:
    """Starts a Python program, as another user by default, and waits until it is up."""

    def start(
        program: str, *words: Any, prefix: tuple[str, ...] = AS_NOBODY, mark: Optional[str] = None
    ) -> subprocess.Popen[str]:
        command = [*prefix, "/usr/bin/python3", "-I", "-S", "-c", program, *words]
        marked = {} if mark is None else {"CBT_CRYPTO_MARK": mark}
        return start_child(command, cwd="/", env={"PATH": os.environ["PATH"], **marked})

    return start


@pytest.fixture
def own(tmp_path: Path) -> str:
    return str(tmp_path / "own")


def sh(text: str, *prefix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, "sh", "-c", f"set -eu\nSUDO= BARE_SUDO=\n{text}"],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["usb\udcff", "\r1\x0b1\x0b0:9\x0b/\x0b/own/x"])
def test_a_mount_whose_name_is_no_text(tmp_path: Path, own: str, name: str) -> None:
    """Any user's FUSE mount or stick had `hold`, `free` and each removal end in a trace, or was
    taken for one below the directory."""
    place = os.fsencode(tmp_path / name.replace("/own", own))
    os.makedirs(place)
    order = {"resources": [["tmp_dir", own]], "holder": {"run": "mine", "pid": 1}, "run": "mine"}
    steps = [
        directories.make(own),
        shell.python(shell.program(hold_on_host), {**order, "action": "hold"}),
        shell.python(shell.program(hold_on_host), {**order, "action": "free"}),
        directories.remove(own),
    ]
    text = "\n".join(f"(\n{step}\n)" for step in steps)
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    bound = ("unshare", "--mount", "sh", "-c", mount, os.fsdecode(place))
    done = sh(text, *bound)
    assert (done.returncode, done.stdout) == (0, "held\nfree\n"), done.stderr


def test_a_mount_below_the_directory_whose_name_is_no_text(own: str) -> None:
    text = f'{directories.make(own)}\nmkdir "$0"\nmount -t tmpfs none "$0"\n'
    name = os.fsdecode(os.fsencode(own) + b"/x\xff")
    command = f"set -eu\nSUDO=\n{text}{directories.remove(own)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, name], capture_output=True, check=False
    )
    assert done.returncode != 0 and b"is mounted below" in done.stderr, done.stderr


def test_a_mapped_file_whose_name_has_a_line_break(tmp_path: Path, run: Run) -> None:
    """Whoever mapped it could have every check of a device end in a trace."""
    maps = "import mmap, os\nfile = os.memfd_create(chr(13))\nos.truncate(file, 4096)\n"
    maps += "kept = mmap.mmap(file, 4096)\n"
    run(maps + NAMED, "maps")
    assert writers(str(tmp_path)) == []


def test_a_process_whose_name_is_no_text(run: Run, own: str) -> None:
    """It kept a cluster's OSDs, and what a client has open, from being found."""
    asked = {"fsid": "f00", "osds": {"0": "/none"}}
    mark = f"{own}@localhost"
    run(NAMED, b"\xff\xfe", mark=mark)
    run(NAMED, b"\xff\xfe", prefix=(), mark=mark)
    done = sh(shell.python(shell.program(sockets_on_host), asked))
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr
    assert Clients({"programs": ["fio"], "tmp_dir": own}).present() == []
    assert find_process("fio", f"CBT_CRYPTO_MARK={mark}".encode(), own) == {}


def test_the_recorder_goes_on_beside_a_process_whose_name_is_no_text(
    tmp_path: Path, own: str, run: Run
) -> None:
    """It died in silence, and what explains a cell's figures was missing."""
    folder = tmp_path / "run"
    folder.mkdir()
    remote, host = Remote(common, own), "localhost"
    start = samplers.start_recorder(str(folder), own, has_clients=True)
    with samplers.recorded(remote, {host: start}, str(folder)):
        run(NAMED, b"\xff", prefix=(), mark=f"{own}@localhost")
        before = len((folder / "recording").read_bytes().splitlines())
        ends = time.monotonic() + 10
        while len((folder / "recording").read_bytes().splitlines()) < before + 3:
            assert time.monotonic() < ends
            time.sleep(0.1)


def test_threads_of_his_are_no_threads_of_ceph_s(run: Run) -> None:
    """Threads of any process called ceph-osd were told apart by names that anybody may take."""
    spins = """
import ctypes, threading
def spin():
    ctypes.CDLL(None).prctl(15, b"bstore_kv_sync", 0, 0, 0)
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
"""
    his, ours = (run(spins + NAMED, "ceph-osd", prefix=p) for p in (AS_NOBODY, ()))
    tasks = recorder_on_host.Tasks()
    pids = {str(his.pid), str(ours.pid)}
    tasks.scan(pids, set())
    assert (set(tasks.whole), str(his.pid) in tasks.tasks) == ({str(ours.pid)}, True)
    time.sleep(0.3)
    assert {"other", "bstore_kv_sync"} <= set(tasks.sample(pids, set()) or ())


def test_his_ceph_osd_is_none_of_the_sampled(run: Run) -> None:
    """Its CPU time was in the OSDs' of the report."""
    his, ours = (run(NAMED, "ceph-osd", prefix=prefix) for prefix in (AS_NOBODY, ()))
    sampled = counter_sampler_on_host.sample(with_processes=True)
    assert f"\nproc:{ours.pid} stat {ours.pid} (ceph-osd) " in sampled
    assert f"\nproc:{his.pid} stat" not in sampled


#: Files of ours, and such of the kernel's as have numbers alone.
_OURS = re.compile(
    r"pid_file|note|\.base|base \+|descriptor|reads|os\.devnull|'dev'|\.pid|program|conf\b"
    r"|argv|boot_id"
)
_READS = {".open", "read_text", "fdopen"}


def _texts_read(source: str, is_for_hosts: bool) -> Iterator[str]:
    """Calls that read text, and end in an error where that is no text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and str(node.value).lstrip().startswith("import "):
            yield from _texts_read(str(node.value), True)
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", None) or f".{getattr(node.func, 'id', '')}"
        call = ast.unparse(node)
        mode = re.search(r", (?:mode=)?'([rwabx+]+)'", call)
        is_text = name in _READS and not (mode and mode[1] != "r")
        is_any = any(word.arg == "errors" for word in node.keywords) or _OURS.search(call)
        if is_text and not is_any and (is_for_hosts or re.search(r"/(proc|sys)\b", call)):
            yield call


def test_whatever_the_kernel_lists_is_read_though_it_is_no_text() -> None:
    found = {}
    for folder in ("benchmarks", "cbt_crypto", "cluster_overlays"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = [*_texts_read(path.read_text(), path.stem.endswith("_on_host"))]
            if calls:
                found[path.relative_to(ROOT).as_posix()] = calls
    assert found == {}


# -- marks ---------------------------------------------------------------------------------------


@pytest.fixture
def setuid(tmp_path: Path) -> Iterator[Path]:
    """A program of root's that anybody may run as root, under a name of his own."""
    place = Path("/var/tmp") / f"cbt-setuid-{os.getpid()}"
    place.mkdir()
    program = place / "sleep"
    shutil.copy(os.path.realpath("/bin/sleep"), program)
    program.chmod(0o4755)
    yield program
    shutil.rmtree(place)


def test_his_client_is_not_counted(run: Run, own: str) -> None:
    """With the mark, which anybody can guess, it passed as the campaign's: CPU that nobody used."""
    mark = f"{own}@localhost"
    his = run(NAMED, "fio", mark=mark)
    ours = run(NAMED, "fio", prefix=(), mark=mark)
    clients = Clients({"programs": ["fio"], "tmp_dir": own})
    assert clients.present() == [str(ours.pid)]
    assert is_believed(str(his.pid), (NOBODY,)) and not is_believed(str(his.pid))


def test_what_root_runs_for_him_is_his(setuid: Path, own: str) -> None:
    mark = f"CBT_CRYPTO_MARK={own}@localhost"
    process = subprocess.Popen([*AS_NOBODY, "env", mark, str(setuid), "60"])
    try:
        ends = time.monotonic() + 10
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < ends
            time.sleep(0.02)
        if os.stat(f"/proc/{process.pid}").st_uid != 0:
            pytest.skip("/var/tmp takes no setuid programs")
        assert not is_believed(str(process.pid))
        done = sh(f"export {mark}\n{kill_script(('KILL',), timeout=3)}")
        assert done.returncode == 0 and process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_his_processes_are_not_ended_nor_waited_for(run: Run, own: str) -> None:
    """One that is started again and again let no tear-down end."""
    mark = f"{own}@localhost"
    his = run(NAMED, "fio", mark=mark)
    ours = run(NAMED, "fio", prefix=(), mark=mark)
    run(AGAIN, mark=mark)
    began = time.monotonic()
    done = sh(f"export CBT_CRYPTO_MARK={mark}\n{kill_script(('KILL',), timeout=5)}")
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 5
    assert his.poll() is None and ours.wait(5) == -9


def test_a_campaign_s_user_s_processes_are_ended(run: Run, own: str) -> None:
    """Whom root's scripts know by CBT_CRYPTO_UID."""
    mark = f"{own}@localhost"
    ours = run(NAMED, "ceph-osd", mark=mark)
    text = f"export CBT_CRYPTO_UID={NOBODY} CBT_CRYPTO_MARK={mark}\n{kill_script(('KILL',))}"
    assert sh(text).returncode == 0
    assert ours.wait(5) == -9


@pytest.mark.parametrize("by_session", [False, True])
def test_his_process_that_has_the_number_of_ours_is_not_waited_for(
    run: Run, own: str, tmp_path: Path, by_session: bool
) -> None:
    """Who takes each number that is free had tear-downs end with "these processes do not end"."""
    if not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        pytest.skip("the kernel gives no number that is asked for")
    mark = f"{own}@localhost"
    host = run(REUSED, mark, prefix=())
    text = kill_script(("KILL",), timeout=5)
    if by_session:
        (tmp_path / "pid").write_text(str(os.getsid(host.pid)))
        text = shell.stop_in_background(str(tmp_path / "pid"), ("KILL",)) + '\n[ -z "$pid" ]'
    done = sh(f"export CBT_CRYPTO_MARK={mark}\n{text}")
    assert host.stdout is not None and host.stdout.readline() == "his\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_so_many_of_his_that_grep_is_not_started_hide_none_of_ours(run: Run, own: str) -> None:
    """All were words of one program, which the kernel then refused: nothing was found to end."""
    mark = f"{own}@localhost"
    ours = run(NAMED, "fio", prefix=(), mark=mark)
    run(MANY)
    # As few words as a program may have in any case: as 70,000 processes are with usual limits.
    text = f"export CBT_CRYPTO_MARK={mark} FILL=$(printf %0121000d 0)\n"
    done = sh(text + kill_script(("KILL",), timeout=5), "prlimit", "--stack=524288")
    assert (done.returncode, done.stderr) == (0, "")
    assert ours.wait(5) == -9


# -- processes that hold up who looks ---


@pytest.fixture
def held(run: Run, folder: Path) -> int:
    """A process of nobody's, called ceph-osd, whose environment is waited for without an end."""
    pid = run(UNANSWERED, str(folder), prefix=("unshare", "--mount", LET_GO)).pid
    command = ["timeout", "1", "cat", f"/proc/{pid}/environ"]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 124:
        pytest.skip("the kernel has no FUSE here, or does not wait for it")
    return pid


def test_a_process_that_nobody_can_look_at_holds_up_no_tear_down(
    held: int, run: Run, own: str, tmp_path: Path
) -> None:
    """The search for our mark read the environment of everybody's processes, and waited for his."""
    mark = f"{own}@localhost"
    ours = run(NAMED, "fio", prefix=(), mark=mark)
    text = f"export CBT_CRYPTO_MARK={mark}\n{kill_script(('KILL',), timeout=5)}"
    assert sh(text, "timeout", "20").returncode == 0
    assert ours.wait(5) == -9
    # nor by a pid file that is old
    (tmp_path / "pid").write_text(f"{held}\n")
    again = kill_script(("KILL",), timeout=5, pid_files=[str(tmp_path / "pid")])
    stop = shell.stop_in_background(str(tmp_path / "pid"))
    assert sh(f"export CBT_CRYPTO_MARK={mark}\n({again})\n{stop}", "timeout", "20").returncode == 0


def test_a_process_that_nobody_can_look_at_holds_up_no_check(held: int, own: str) -> None:
    """pgrep -x reads command lines as well, which are waited for likewise."""
    done = sh(environment.SCRIPT, "timeout", "60")
    assert done.returncode == 0 and "libraries" in done.stdout
    site = Site(own, "", "h", ("h",), ())
    (load,) = (fact for fact in survey.facts(site, None, 0) if isinstance(fact, LoadAverage))
    done = sh(f"mark={own}@localhost\n{load.script}", "timeout", "20")
    assert done.returncode == 0 and "ceph-osd" in done.stdout


def test_a_process_that_nobody_can_look_at_may_have_a_device_open(held: int, own: str) -> None:
    """Each check of a device waited for it."""
    with pytest.raises(Refused, match=rf"held open by ceph-osd \(process {held}\)"):
        writers(own, patience_s=0.5)


# -- OSDs ----------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where anybody may make a socket."""
    place = Path(f"/var/tmp/cbt-sockets-{os.getpid()}")
    place.mkdir()
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def _osds() -> subprocess.CompletedProcess[str]:
    asked = {"fsid": "f00", "osds": {"0": "/none"}}
    return sh(shell.python(shell.program(sockets_on_host), asked))


def test_his_process_is_no_osd(run: Run, folder: Path) -> None:
    """Whatever was proved of osd.0 was his word."""
    run(ANSWERS, str(folder / "osd.0.asok"))
    assert json.loads(_osds().stdout) == {}
    # ours has the same list of sockets
    ours = run(ANSWERS, str(folder / "ours.asok"), prefix=())
    assert json.loads(_osds().stdout)["0"]["pid"] == ours.pid


@pytest.mark.parametrize("user", [167, 0])
def test_an_osd_of_the_user_ceph_is_one(run: Run, folder: Path, user: int) -> None:
    path = folder / "any name"
    osd = run(ANSWERS, str(path), prefix=("setpriv", f"--reuid={user}", "--clear-groups"))
    (found,) = json.loads(_osds().stdout).values()
    assert (found["pid"], found["socket"]) == (osd.pid, f"/proc/{osd.pid}/root{path}")


def test_two_that_say_they_are_one_osd_are_refused(run: Run, folder: Path) -> None:
    for name in ("a", "b"):
        run(ANSWERS, str(folder / name), prefix=())
    done = _osds()
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "osd.0 answers at /proc/" in done.stderr


#: Has sockets of others listed as if they were an OSD's.
LISTED = """
import socket, sys, time
kept = []
for path in sys.argv[1:]:
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind("\\0\\nx: 2 0 1 1 01 7 " + path)
print("up", flush=True)
time.sleep(60)
"""


def test_sockets_of_root_s_that_he_has_listed_hold_up_no_search(run: Run, folder: Path) -> None:
    """Each that does not answer took 10 s, and the OSDs were not found in time."""
    silent = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for number, each in enumerate(silent):
        each.bind(str(folder / f"{number}.asok"))
        each.listen(1)
    ours = run(ANSWERS, str(folder / "ours.asok"), prefix=())
    run(LISTED, *(each.getsockname() for each in silent))
    began = time.monotonic()
    assert json.loads(_osds().stdout)["0"]["pid"] == ours.pid
    assert time.monotonic() - began < 18
    for each in silent:
        each.close()


def test_what_osds_encrypt_with_is_not_his_word(run: Run, folder: Path) -> None:
    library = folder / "libcrypto.so.3"
    library.write_bytes(b"OpenSSL 9.9.9 1 Jan 2030".ljust(4096, b"\0"))
    maps = "import mmap, sys\nfile = open(sys.argv[2], 'rb')\n"
    maps += "kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n"
    run(maps + NAMED, "ceph-osd", str(library))
    assert "9.9.9" not in sh(environment.SCRIPT).stdout
    run(maps + NAMED, "ceph-osd", str(library), prefix=("setpriv", "--reuid=167", "--clear-groups"))
    assert "openssl\tOpenSSL 9.9.9 1 Jan 2030\n" in sh(environment.SCRIPT).stdout


@pytest.mark.parametrize("mark", ["", "/run/of/ours@0:1"])
def test_a_stranger_that_got_a_number_of_perf_s_goes_on(tmp_path: Path, mark: str) -> None:
    """The end of a cell polled numbers for minutes, and then killed whoever had them."""
    ours = {**os.environ, "CBT_CRYPTO_MARK": "/run/of/ours@0:1"}
    victim = subprocess.Popen(["sleep", "60"], env={**ours, "CBT_CRYPTO_MARK": mark})
    try:
        # Defines what `fold_stacks` calls, and leaves nothing in $pid.
        ended = shell.stop_in_background(str(tmp_path / "none"))
        fold = shell.call(samplers.__file__, "fold_stacks", str(tmp_path / "stacks"), "1")
        script = f"SUDO=\n{ended}\npid={victim.pid}\n{fold}"
        subprocess.run(["sh", "-c", script], env=ours, check=True, timeout=30)
        assert (victim.poll() is None) == (not mark)
    finally:
        victim.kill()
        victim.wait()
