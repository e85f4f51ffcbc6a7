"""What destroys stands in few modules, each behind its proof; and in no other."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
DEVICES = "cbt_crypto/hosts/devices/destroy.sh"
#: Images that a client's kernel has mapped are proved by what the kernel says of them.
IMAGES = "cbt_crypto/hosts/devices/rbd_images.sh"
#: Those of somebody else's cluster, by what they say of themselves.
OF_CLUSTER = "cbt_crypto/hosts/devices/rbd_images.sh"
#: Command -> the modules that may have it.
ALLOWED = {
    r"\bwipefs\b[^\n]* -a\b": {DEVICES},
    r"\bdd if=": {DEVICES},
    r"\b(luksFormat|luksErase|reencrypt)\b": {DEVICES, IMAGES},
    r"\bencryption format\b": {IMAGES},
    r"\bcryptsetup close\b": {DEVICES, IMAGES},
    r"\brbd (device )?unmap\b": {IMAGES},
    r"\brm --no-progress\b": {OF_CLUSTER},
    r"\b(pvcreate|vgremove|pvremove|lvremove)\b": {DEVICES},
    r"\bmdadm --(create|stop|zero-superblock)\b": {DEVICES},
    r"\bmkfs\.(ext4|xfs) -": {DEVICES, IMAGES},
    r"\bblkdiscard\b": {DEVICES},
    r"\b(sgdisk|parted|zap)\b": set(),
    r"\brm -[a-z]*r": set(),
    r"\bshred\b": set(),
    r"\b(killall|pkill)\b": set(),
}  # fmt: skip
#: A lab's machines are disposable: what is done in them is done to nobody.
DISPOSABLE = ("cbt_crypto/lab/",)
PRODUCT = ("benchmarks", "cbt_crypto", "cluster_overlays")


@cache
def texts(path: Path) -> list[str]:
    """What may be a command: a script's lines, or a module's strings without its docstrings."""
    if path.suffix == ".sh":
        return ["\n".join(re.findall(r"^(?!\s*#).*$", path.read_text(), re.M))]
    tree = ast.parse(path.read_text())
    documents = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        "\n".join(line for line in node.value.splitlines() if not line.lstrip().startswith("#"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents
    ]


def modules() -> list[str]:
    found = [*ROOT.glob("cbt_crypto/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    found += ROOT.glob("cluster_overlays/**/*.py")
    found += [path for name in PRODUCT for path in ROOT.glob(f"{name}/**/*.sh")]
    names = sorted({path.resolve().relative_to(ROOT).as_posix() for path in found})
    return [name for name in names if not name.startswith(DISPOSABLE)]


@pytest.mark.parametrize("command", ALLOWED)
def test_no_other_module_has_it(command: str) -> None:
    found = {
        name for name in modules() if any(re.search(command, text) for text in texts(ROOT / name))
    }
    assert found <= ALLOWED[command]


def test_every_function_that_destroys_proves_first() -> None:
    """In the shell text of each function, `prove` stands before the first such command."""
    text = (ROOT / DEVICES).read_text()
    functions = re.findall(r"^(\w+)\(\) \{\n(.*?)^\}", text, re.M | re.S)
    # These are called by functions that have proved.
    helpers = {"wipe_node", "blank", "reset_opal", "now"}
    destroying = re.compile("|".join([*ALLOWED, r"\bwipe_node\b"]))
    seen = set()
    for name, body in functions:
        first = destroying.search(body)
        if first and name not in helpers:
            seen.add(name)
            assert "prove " in body[: first.start()], name
    assert seen >= {"claim", "empty", "format_luks", "close_luks", "make_group", "remove_group"}
    assert seen >= {"make_array", "stop_array", "discard"}


def test_what_destroys_on_images_proves_right_before() -> None:
    text = (ROOT / IMAGES).read_text()
    destroying = re.compile(r"luksFormat|mkfs|cryptsetup close|device unmap")
    for name, count in {"format_luks": 1, "make_files": 2, "detach": 2}.items():
        body = re.findall(rf"^{name}\(\) \{{\n(.*?)^\}}", text, re.M | re.S)[0]
        places = [match.start() for match in destroying.finditer(body)]
        assert len(places) == count
        for before, place in zip([0, *places], places):
            assert re.search(r'prove "\$block"|is_new "\$1"', body[before:place]), name
    librbd = re.findall(r"^format_librbd\(\) \{\n(.*?)^\}", text, re.M | re.S)[0]
    assert librbd.index('diff "$1/$2") || exit 1') < librbd.index("encryption format")
    assert 'is_new() {\n    prove "$block" "$fsid" "$1" "$2"' in text


#: Modules that write down when something was; what waits asks the monotonic clock.
TELL_THE_TIME = {
    "cbt_crypto/archive/folder.py", "cbt_crypto/engine/upstream/cell.py",
    "cbt_crypto/hosts/remote.py", "cbt_crypto/hosts/command_log.py",
    "cbt_crypto/hosts/recorder_on_host.py",
    "cbt_crypto/hosts/counter_sampler_on_host.py",
    "cbt_crypto/hosts/stacks_on_host.py",
    "cbt_crypto/results/cell/kept.py",
    "cbt_crypto/run/cell/measure.py", "cbt_crypto/run/cell/conditions.py",
    "cbt_crypto/run/detached.py", "cbt_crypto/run/environment.py",
    "cbt_crypto/run/recovery_on_host.py",
    "cbt_crypto/run/journal.py", "cbt_crypto/run/preflight/survey.py",
    "cbt_crypto/run/cell/watch_on_host.py", "cbt_crypto/run/progress.py",
}  # fmt: skip


def test_nothing_waits_by_the_wall_clock() -> None:
    """A clock that is set during a wait would end it at once, or never."""
    wall = re.compile(r"\btime\.time\(\)|datetime\.now\(|\butcnow\(")
    found = {name for name in modules() if wall.search((ROOT / name).read_text())}
    assert found <= TELL_THE_TIME
    for name in found:
        tree = ast.parse((ROOT / name).read_text())
        waits = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
        assert not any(wall.search(ast.unparse(node)) for node in waits), name
    shells = [text for name in modules() for text in texts(ROOT / name) if "while" in text]
    assert not [text for text in shells if re.search(r"\bdate \+%s\)? -|SECONDS", text)]


def test_the_table_of_attempts_names_tests_that_there_are() -> None:
    """Of README.md here; a test that is renamed or removed takes its row with it."""
    table = Path(__file__).with_name("README.md").read_text().partition("| Attempt | Held by |")[2]
    held = [line.split(" | ")[-1] for line in table.splitlines() if line.startswith("| ")][1:]
    files = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        module = path.stem.removeprefix("test_")
        files.update({module: path, f"{path.parent.name}/{module}": path})
    assert len(held) > 20
    for part in (part for cell in held for part in cell.rstrip(" |").split("; ")):
        modules, _, names = part.partition(": ")
        for module in modules.split(", "):
            assert module.rpartition("/")[2] in {*files, "fuzz"}, module
        for name in filter(None, re.sub(r"\[\w+\]", "", names).split(", ")):
            module = modules if modules in files else modules.rpartition("/")[2]
            assert f"def test_{name}(" in files[module].read_text(), part
