"""`make fuzz`: coverage-guided fuzzing of everything that reads what others wrote.

fuzz_inputs.py [SECONDS [INPUTS [NAME ...]]]   each target, or those named, for so long (60), or for
                                    so many inputs where that is less (1,000,000); writes its row of
                                    docs/fuzz.md after each of them
fuzz_inputs.py --target NAME SECONDS INPUTS CORPUS
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fuzz.md"
_TEXT = """# Foreign inputs that were tried

Written by `make fuzz` with Atheris (libFuzzer for Python), coverage-guided, starting from real
inputs. Each reader gets bytes, and may answer with a value or with one sentence of an error;
anything else is a finding. Hypothesis tries the same readers in every `make test`.

| What is read | Inputs tried | Seconds | Findings |
| --- | --- | --- | --- |
"""


def one(name: str, seconds: str, inputs: str, corpus: str) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris  # noqa: PLC0415 - only here: the driver does without

    with atheris.instrument_imports(include=["cbt_crypto", "configparser", "yaml"]):
        from fuzz_targets import TARGETS  # noqa: PLC0415 - what is to be instrumented
    target = TARGETS[name]
    options = [f"-max_total_time={seconds}", f"-runs={inputs}", "-timeout=20"]
    # What one input may take; the fuzzer's own memory grows with their number.
    options += ["-malloc_limit_mb=1024", "-rss_limit_mb=8192", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={corpus}/crash-", corpus], target)
    atheris.Fuzz()


def main(seconds: str = "60", inputs: str = "1000000", *names: str) -> int:
    """Fuzz every target, or those named; return how many had a finding."""
    from fuzz_targets import TARGETS  # noqa: PLC0415 - not before `one` can instrument it

    rows, bad = _rows(), 0
    for name in names or TARGETS:
        target = TARGETS[name]
        with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
            for number, seed in enumerate(target.seeds):
                Path(corpus, f"seed-{number}").write_bytes(seed[:65536])
            command = [sys.executable, __file__, "--target", name, seconds, inputs, corpus]
            began = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        counts = re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)
        tried = max(map(int, counts), default=0)
        finding = "none" if done.returncode == 0 and tried else "yes"
        bad += finding != "none"
        took = time.monotonic() - began
        rows[name] = f"| {name} | {tried:,} | {took:.0f} | {finding} |"
        print(rows[name], flush=True)
        if finding != "none":
            print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
        kept = [rows[each] for each in TARGETS if each in rows]
        _DOCUMENT.write_text(_TEXT + "\n".join(kept) + "\n")
    return bad


def _rows() -> dict[str, str]:
    """What each target had when it was fuzzed last, as its line of the page."""
    lines = _DOCUMENT.read_text().splitlines() if _DOCUMENT.exists() else []
    return {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--target"]:
        one(*sys.argv[2:6])
    else:
        sys.exit(main(*sys.argv[1:]) > 0)
