"""Sample by perf what a host runs, and fold its stacks. Runs on hosts: Python 3.6 alone."""

import collections
import gzip
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterable, List

from cbt_crypto.hosts.recorder_on_host import class_of, read
from cbt_crypto.hosts.trust_on_host import ceph_users, is_believed

#: Stack, outermost frame first -> second -> samples.
Stacks = Dict[str, "collections.Counter[int]"]

#: Stacks that are kept, frames of one, and characters of a frame.
_MOST_STACKS, _MOST_FRAMES, _LONGEST = 2000, 100, 100
#: Sampling ends here: a full disk would end the campaign.
_MOST_BYTES = 1 << 30
_KERNEL_FLAG = 0x00200000
#: `msgr-worker-0  905/1321  54642.519337:`, and below it `\td85085 OSD::tick (/usr/bin/ceph-osd)`.
_SAMPLE = re.compile(r"(.*\S) +(-?\d+)/-?\d+ +(\d+\.\d+): *$")
_FRAME = re.compile(r"\t *[0-9a-f]+ (.*) \((.*)\)$")
#: What every thread begins with, if perf finds it.
_STARTS = ("clone3", "clone", "start_thread", "ret_from_fork_asm_[k]", "ret_from_fork_[k]")
_TEMPLATE = re.compile(r"<[^<>]*>")


def processes() -> Dict[str, str]:
    """Number -> `ceph-osd` or `kernel`, of each OSD and each thread of the kernel."""
    kinds = {}
    users = ceph_users()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, _, rest = read(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
        except OSError:
            continue
        if int(rest.split()[6]) & _KERNEL_FLAG:
            kinds[pid] = "kernel"
        elif name == "ceph-osd" and is_believed(pid, users):
            kinds[pid] = name
    return kinds


def frame_of(symbol: str, dso: str) -> str:
    """Its name, without templates' arguments; of one without symbol its file's, or nothing."""
    if symbol == "[unknown]":
        return "" if dso == symbol else f"[{dso.rpartition('/')[2].strip('[]')}]"
    before = ""
    while symbol != before:
        before, symbol = symbol, _TEMPLATE.sub("", symbol)
    # Some have the version of their library behind `@`.
    symbol = symbol.partition("@")[0][:_LONGEST].replace(";", ":")
    return f"{symbol}_[k]" if dso.startswith("[") and dso != "[vdso]" else symbol


def stack_of(kind: str, name: str, frames: List[str]) -> str:
    """The stack of a sample with its thread's class; empty where that is of no interest."""
    if kind == "kernel":
        # A worker is called after what it did when perf began, which may be over.
        is_crypt = any(frame.startswith("kcryptd") for frame in frames)
        of_class = "kcryptd" if is_crypt else class_of(name.partition("-")[0], "")
    else:
        of_class = class_of(name, "ceph-rest")
    inner = list(itertools.dropwhile(_STARTS.__contains__, reversed(frames)))[:_MOST_FRAMES]
    return ";".join([kind, of_class, *inner]) if kind and of_class else ""


def folded(lines: Iterable[str], kinds: Dict[str, str], began: float) -> Stacks:
    """What `perf script` prints; seconds are since `began`."""
    stacks = {}  # type: Stacks
    frames, kind, name, second = [], "", "", 0  # type: List[str], str, str, int
    for line in itertools.chain(lines, [""]):
        frame, sample = _FRAME.match(line), _SAMPLE.match(line)
        if frame:
            text = frame_of(*frame.groups())
            # Several frames of one file without symbols are one.
            if text and not (text.startswith("[") and frames[-1:] == [text]):
                frames.append(text)
            continue
        stack = stack_of(kind, name, frames)
        if stack:
            stacks.setdefault(stack, collections.Counter())[second] += 1
        frames, kind = [], ""
        if sample:
            name, kind = sample[1].strip(), kinds.get(sample[2], "")
            second = max(int(float(sample[3]) - began), 0)
    return stacks


def bounded(stacks: Stacks, most: int) -> Stacks:
    """The `most` frequent; the others of each class together."""
    ranked = sorted(stacks, key=lambda stack: (-sum(stacks[stack].values()), stack))
    kept = {stack: stacks[stack] for stack in ranked[:most]}
    for stack in ranked[most:]:
        other = ";".join([*stack.split(";")[:2], "other"])
        kept.setdefault(other, collections.Counter()).update(stacks[stack])
    return kept


def record(asked: Dict[str, Any], event: str, path: str) -> str:
    """Sample until SIGTERM, until the folder goes, or until it is enough; why not, or nothing."""
    graph = "dwarf,8192" if asked["unwind"] == "dwarf" else asked["unwind"]
    # Nothing is written to root's home; the clock is one that hardware counters can have.
    command = [asked["perf_cmd"], "record", "-q", "-B", "-N", "-a", "-F", str(asked["frequency"]),
               "--call-graph", graph, "-k", "CLOCK_MONOTONIC", "-e", event, "-o", path]  # fmt: skip
    with open(f"{path}.said", "w+b") as words:
        perf = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        # By SIGTERM, which whoever ends us sends to perf as well, that ends in good order; here it
        # is waited for, and so not delivered.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        while perf.poll() is None and os.path.isdir(asked["folder"]):
            is_enough = os.path.exists(path) and os.path.getsize(path) > _MOST_BYTES
            if is_enough or signal.sigtimedwait([signal.SIGTERM], 1):
                break
        perf.terminate()
        if perf.wait() in (0, -signal.SIGTERM):
            return ""
        words.seek(0)
        said = words.read(4096).decode("utf-8", "replace")
    return " ".join(said.split())[:300] or f"perf ended with {perf.returncode}"


def fold(
    asked: Dict[str, Any], path: str, kinds: Dict[str, str], began: float, most_s: int = 600
) -> Stacks:
    """The stacks of a record. Raises OSError if that takes too long."""
    # Nothing of others': perf prints their symbols' names with all line breaks.
    command = [asked["perf_cmd"], "script", "-i", path, "--no-inline", f"--pid={','.join(kinds)}",
               "-F", "comm,pid,tid,time,ip,sym,dso"]  # fmt: skip
    environment = dict(os.environ, DEBUGINFOD_URLS="")  # No server is asked for symbols.
    perf = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            env=environment)  # fmt: skip
    assert perf.stdout is not None
    # It reads the symbols of all that it sampled, and a user's program may have endless ones.
    timer = threading.Timer(most_s, perf.kill)
    timer.start()
    lines = (line.decode("utf-8", "replace").rstrip("\n") for line in perf.stdout)
    stacks = folded(lines, kinds, began)
    timer.cancel()
    if perf.wait() == -signal.SIGKILL:
        raise OSError(f"perf script took more than {most_s} s")
    return bounded(stacks, _MOST_STACKS)


def main(asked: Dict[str, Any]) -> None:
    """Write `folder`/stacks; `folder`/.stacks is for the record, and is removed."""
    scratch = f"{asked['folder']}/.stacks"
    path, stacks = f"{scratch}/perf.data", {}  # type: str, Stacks
    header = {"format": 1, "hz": asked["frequency"], "seconds": 0}  # type: Dict[str, Any]
    header["t"] = time.time()
    began = time.monotonic()
    try:
        counts = subprocess.Popen([asked["perf_cmd"], "stat", "-e", "cycles", "true"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        header["event"] = "cpu-clock" if b"<not" in counts.communicate()[1] else "cycles"
        kinds = processes()
        header["error"] = record(asked, header["event"], path)
        header["seconds"] = round(time.monotonic() - began, 3)
        if not header["error"]:
            # What came meanwhile, as workers of the kernel do, is known now.
            stacks = fold(asked, path, {**processes(), **kinds}, began)
    except OSError as error:
        header.update(error=str(error))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if os.path.isdir(asked["folder"]):
        with gzip.open(f"{asked['folder']}/stacks", "wb") as file:
            file.write((json.dumps(header) + "\n").encode())
            for stack, counted in stacks.items():
                words = " ".join(f"{second}:{samples}" for second, samples in counted.items())
                file.write(f"{stack}\t{words}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    main(json.loads(sys.stdin.read()))
