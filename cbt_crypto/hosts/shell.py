"""Shell text: commands in sequence or in the background, and Python that runs on the hosts."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from typing_extensions import TypeGuard

from cbt_crypto.hosts.site import HostScripts

#: The variable with what runs programs of `python` in a script, where that is something else.
PYTHON = "CBT_CRYPTO_PYTHON"
#: A function of a `.sh` file, on one line or on several; no other line of these files is sent.
FUNCTION = re.compile(r"^(\w+)\(\) \{(?: [^\n]* \}|\n.*?^\})$", re.MULTILINE | re.DOTALL)


def calling(module_file: str, text: str) -> str:
    """`text` behind the functions of the `.sh` file beside a module that it names.

    What these functions name of the same file comes too, in the file's order.
    """
    functions = _functions(module_file)
    called: set[str] = set()
    texts = [text]
    while texts:
        names = functions.keys() & set(re.findall(r"\w+", texts.pop())) - called
        called |= names
        texts += [functions[name] for name in names]
    return "".join(f"{functions[name]}\n" for name in functions if name in called) + text


def call(module_file: str, *words: str) -> str:
    """Shell text that calls one function of that file, `words[0]`, with the other words."""
    return calling(module_file, shlex.join(words))


@lru_cache
def _functions(module_file: str) -> Mapping[str, str]:
    source = Path(module_file).with_suffix(".sh").read_text(encoding="utf-8")
    return {match[1]: match[0] for match in FUNCTION.finditer(source)}


#: What runs a module of this package, which is the second word; the first is where that lies.
_RUN_MODULE = (
    "import sys; sys.path[0] = sys.argv.pop(1); import runpy; "
    'runpy.run_module(sys.argv.pop(1), None, "__main__", True)'
)


def own_program(module: str) -> list[str]:
    """The command line of a module of this package; nothing is imported from where one stands."""
    return [sys.executable, "-c", _RUN_MODULE, str(Path(__file__).parents[2]), module]


@lru_cache
def program(module: ModuleType) -> str:
    """The source of a `*_on_host` module and its imports as one program, without comments."""
    *imported, started = _with_imported(module)
    return "".join(map(_bare, imported)) + _bare(started, keeps_start=True)


@lru_cache
def definitions(module: ModuleType) -> str:
    """The source of `program` without its last `if __name__`, for a caller of its functions."""
    return "".join(map(_bare, _with_imported(module)))


def call_of_main(module: ModuleType, asked: Any) -> str:
    """A program that calls the module's `main` with `asked`, which JSON can hold."""
    return f"{definitions(module)}main(json.loads({json.dumps(asked)!r}))"


def _with_imported(module: ModuleType) -> list[ModuleType]:
    modules: list[ModuleType] = []
    for node in ast.parse(inspect.getsource(module)).body:
        if _is_ours(node):
            modules += _with_imported(importlib.import_module(str(node.module)))
    return list(dict.fromkeys([*modules, module]))


def _is_ours(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and str(node.module).startswith("cbt_crypto.")


#: Replaces every name imported from typing, whose import takes a quarter of a program's start.
NO_TYPE = 'type("", (), {"__getitem__": lambda *_: None})()'


def _bare(module: ModuleType, keeps_start: bool = False) -> str:
    source = inspect.getsource(module)
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            _replace(lines, node, " " * node.col_offset + '""')
        elif isinstance(node, ast.ImportFrom) and node.module == "typing":
            _replace(lines, node, " = ".join([*(name.name for name in node.names), NO_TYPE]))
        elif _is_ours(node) or (
            isinstance(node, ast.If) and "__main__" in ast.dump(node.test) and not keeps_start
        ):
            _replace(lines, node, "")
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "".join(
        " " * ((len(line) - len(line.lstrip())) // 4) + line.lstrip() + "\n" for line in kept
    )


def _replace(lines: list[str], node: ast.stmt, text: str) -> None:
    last = node.end_lineno or node.lineno
    lines[node.lineno - 1 : last] = [text] + [""] * (last - node.lineno)


def python(source: str, argument: Any) -> str:
    """Shell text that runs a program, as root where `$SUDO` allows; `argument` is sys.argv[1]."""
    arguments = shlex.quote(json.dumps(argument))
    # -S: what others installed is not looked for, which takes as long as the rest of its start.
    run = f"${{{PYTHON}:-$SUDO python3 -I -S}}"
    return f"{run} - {arguments} <<'PYTHON_PROGRAM'\n{source.strip()}\nPYTHON_PROGRAM\n"


def command(text: str) -> str:
    """A command of the file, such as `cephadm shell -- ceph`, as shell words; or ValueError."""
    return shlex.join(shlex.split(text))


def answer_limit(text: str) -> int:
    """Seconds for the cluster to answer a command; several words may start a container first."""
    return 60 if len(shlex.split(text)) == 1 else 300


def joined(parts: Iterable[HostScripts], keep_going: bool = False) -> HostScripts:
    """Scripts for each host one behind the other; see `sequence`."""
    texts: dict[str, list[str]] = {}
    for part in parts:
        for host, text in part.items():
            if text.strip():
                texts.setdefault(host, []).append(text)
    return {host: sequence(of_host, keep_going) for host, of_host in texts.items()}


def sequence(texts: Sequence[str], keep_going: bool) -> str:
    """One text of several; with `keep_going` each is tried, and it fails when one of them did."""
    if not keep_going:
        # Each overlay's text in a shell of its own: its variables are nobody else's.
        return "\n".join(f"(\n{text}\n)" for text in texts)
    tries = "\n".join(f"(\nset -e\n{text}\n)\n[ $? = 0 ] || bad=1" for text in texts)
    return f"bad=0; set +e\n{tries}\nset -e\n[ $bad = 0 ]"


def start_python(source: str, pid_file: str, output: str, as_root: bool = False) -> str:
    """`python_in_background`, with its process in a file, as `stop_in_background` wants it."""
    return f"{python_in_background(source, output, as_root)}\necho $! > {shlex.quote(pid_file)}"


def python_in_background(source: str, output: str, as_root: bool = False) -> str:
    """Start a Python program, by stdin, in a session of its own; `$!` is its process afterwards."""
    sudo = "$SUDO " if as_root else ""
    return (
        f"setsid {sudo}python3 -I -S - >{shlex.quote(output)} 2>&1 "
        f"<<'PYTHON_PROGRAM' &\n{source.strip()}\nPYTHON_PROGRAM"
    )


def start_in_background(command: str, pid_file: str, output: str = "/dev/null") -> str:
    """Start shell text in a session of its own; `$!` is its process afterwards."""
    return (
        f"setsid {command} </dev/null >{shlex.quote(output)} 2>&1 &\n"
        f"echo $! > {shlex.quote(pid_file)}"
    )


def stop_in_background(pid_file: str, signals: Sequence[str] = ("TERM",)) -> str:
    """End it with SIGTERM, then `signals`, each with 5 s; `$pid` is empty or what did not end.

    Only what is of the session that was started and carries our mark ends. Safe to repeat.
    """
    return call(__file__, "end_session", pid_file, " ".join(signals))


#: Seconds in which collectl writes a sample, once it has made its file.
LEAD_S = 3.0


def first_sample(directory: str, patience_s: int, while_true: str = ":", lead_s: float = 0) -> str:
    """Wait for a sample in one of collectl's files there, at most `patience_s`, while `while_true`.

    Where what follows takes `lead_s` before it counts, a file is enough.
    """
    kind = "file" if lead_s >= LEAD_S else "sample"
    wait = call(__file__, "first_sample", directory, str(2 * patience_s), kind)
    return f"still_runs() {{ {while_true}; }}\n{wait}"


def section(marker: str, text: str) -> str:
    """Shell text whose output is one of the `sections` of a script; it fails as `text` does."""
    return f"echo; echo {marker}\n(\n{text}\n)\n"


def sections(output: str, *markers: str) -> Iterator[tuple[str, str]]:
    """(marker's line, its stripped lines up to the next) of each section of an output."""
    name: Optional[str] = None
    lines: list[str] = []
    for line in output.split("\n"):
        if line.split(" ", 1)[0].rstrip() in markers:
            if name is not None:
                yield name, "\n".join(lines).strip()
            name, lines = line.rstrip(), []
        else:
            lines.append(line)
    if name is not None:
        yield name, "\n".join(lines).strip()
