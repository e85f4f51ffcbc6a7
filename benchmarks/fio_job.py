"""fio's command lines, and the options that every measured fio has."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

#: fio's options by name; None for one without a value.
Job = Mapping[str, object]


def command(program: str, job: Job) -> str:
    """The command of one fio, quoted."""
    words = [f"--{key}" if value is None else f"--{key}={value}" for key, value in job.items()]
    return " ".join(shlex.quote(word) for word in (program, *words))


def results(n: int, log_avg_msec: int) -> dict[str, object]:
    """Options for results in CBT's names: `json_output.<n>` and logs `output.<n>_*`.

    Each IO is logged as a mean over `log_avg_msec`, and its latency as a histogram: percentiles
    of several processes can only be had from histograms.
    """
    return {
        # A line a second on its standard output, which `run` below keeps apart.
        "eta": "always",
        "output-format": "json+",
        "output": f"json_output.{n}",
        "log_avg_msec": log_avg_msec,
        "log_hist_msec": log_avg_msec,
        "log_unix_epoch": 1,
        **{f"write_{kind}_log": f"output.{n}" for kind in ("bw", "iops", "lat", "hist")},
    }


def run(n: int, fio: str) -> str:
    """Shell text that runs one fio: its exit status in `exit_status.<n>`, words in `output.<n>`.

    While it runs, `live.<n>` says how much it does; a campaign shows that, and it is gone then.
    """
    words = f"tr '\\r' '\\n' < live.{n} | grep -av -e '^Jobs: ' -e '^$' || :; cat errors.{n}"
    return (
        f"s=0; {fio} > live.{n} 2> errors.{n} || s=$?; {{ {words}; }} > output.{n}; "
        f"rm -f live.{n} errors.{n}; echo $s > exit_status.{n}"
    )
