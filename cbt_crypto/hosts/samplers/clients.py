"""The processor time of client processes, by user and system, each second while they run.

fio's own `usr_cpu` and `sys_cpu` are of its job's thread alone (RUSAGE_THREAD), and librbd works in
others: what a client costs is what the kernel counts for the whole process.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cbt_crypto.hosts import shell
from cbt_crypto.hosts.samplers import clients_on_host

#: The file of samples in a run's directory; `results.cell.client_cpu` reads it.
FILE = "clients_cpu"
#: Programs of client processes, as the kernel has their names.
PROGRAMS = ("fio", "rados", "rbd", "benchmark")


def around(text: str, run_dir: str, tmp_dir: str, programs: Sequence[str] = PROGRAMS) -> str:
    """Shell text that samples while `text` runs, and fails as it does.

    A host that cannot sample measures all the same. The sampler ends with its file at the latest,
    which is removed with `run_dir`.
    """
    file = f"{run_dir}/{FILE}"
    asked = {"file": file, "tmp_dir": tmp_dir, "programs": list(programs)}
    program = shell.call_of_main(clients_on_host, asked)
    start = shell.python_in_background(program, "/dev/null", as_root=True)
    path = shlex.quote(file)
    return f"""\
{start}
sampler=$!
# Its start would take time from what is measured.
n=0; until [ -s {path} ] || [ $n -ge 200 ]; do n=$((n + 1)); sleep 0.05; done
(
{text}
)
# Nobody has waited for this child yet, so the number of its session is still its own.
$SUDO kill -s TERM -- "-$sampler" 2> /dev/null || :
wait "$sampler" || :"""
