"""How much time a campaign of one cell costs beyond the seconds it measures.

    python perf/harness_overhead.py [--runs 3]

One 10-second 4K random read cell on two OSDs of this machine, from nothing to the archive and back
to nothing. With CBT_HOME naming an upstream checkout, the same cell by upstream's own `cbt.py`,
alternating. That needs root: upstream ends daemons by name, replaces what is in /etc/ceph and sets
the core pattern, so it runs in namespaces of its own, where none of this reaches the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cbt_crypto.archive.files import Malformed
from cbt_crypto.results.readers.process_output import parse_output

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 10
#: Upstream waits 300 s for each command to a monitor that did not start, and then goes on.
UPSTREAM_LIMIT_S = 300

_OURS = """\
cluster:
  head: localhost
  clients: [localhost]
  osds: [localhost]
  mons: {{localhost: {{a: "127.0.0.1:13310"}}}}
  mgrs: {{localhost: {{x: ~}}}}
  osds_per_node: 2
  osd_file_size: 4G
  tmp_dir: {directory}/cluster
  pool_profiles: {{rbd: {{pg_size: 64, pgp_size: 64, replication: 2}}}}
benchmarks:
  rbd_single_client:
    vol_size: 256
    iodepth: 32
    time: {seconds}
    mode: randread
    op_size: 4096
"""

#: `fs: tmpfs` formats no disk, `is_teuthology` runs a cell whose archive folder is new, and the
#: two waits are turned off because they alone would cost a minute or more.
_UPSTREAM = """\
cluster:
  head: localhost
  clients: [localhost]
  osds: [localhost]
  mons: {{localhost: {{a: "127.0.0.1:6789"}}}}
  mgrs: {{localhost: {{a: ~}}}}
  osds_per_node: 2
  fs: tmpfs
  iterations: 1
  use_existing: false
  is_teuthology: true
  clusterid: ceph
  tmp_dir: {directory}/cbt
  pool_profiles: {{rbd: {{pg_size: 64, pgp_size: 64, replication: 2}}}}
benchmarks:
  librbdfio:
    vol_size: 256
    iodepth: [32]
    time: {seconds}
    time_based: true
    mode: [randread]
    op_size: [4096]
    log_avg_msec: 1000
    pool_profile: rbd
    wait_pgautoscaler_timeout: 0
    idle_monitor_sleep: 0
"""

_UPSTREAM_CONF = """\
[global]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
log_file = {directory}/cbt/ceph/log/$name.log
[mon.a]
host = localhost
mon_addr = 127.0.0.1:6789
mon_data = {directory}/cbt/ceph/mon.a
[mgr]
mgr_data = {directory}/cbt/ceph/mgr.$id
[osd]
osd_data = {directory}/cbt/ceph/osd.$id
bluestore_block_size = 4294967296
"""

#: Upstream wants sudo, and a targetcli that succeeds, of whoever runs it.
_STAND_INS = {"sudo": '#!/bin/sh\nexec "$@"\n', "targetcli": "#!/bin/sh\nexit 0\n"}

#: Hides from upstream what it would change on the machine. $1 is an empty file.
_ISOLATE = """\
set -e
for path in /etc/ceph /run /var/lib/ceph /var/log/ceph; do mount -t tmpfs tmpfs "$path"; done
mkdir /run/ceph
mount --bind "$1" /proc/sys/kernel/core_pattern
mount -o remount,bind,ro /sys
ip link set lo up
shift
exec "$@"
"""


@dataclass(frozen=True)
class Engine:
    """What runs the cell. `command` prepares a directory; the archive comes to its `archive`."""

    name: str
    command: Callable[[Path], list[str]]
    limit_s: float | None = None
    #: Seconds beyond the measured ones of each run; None where it failed.
    overheads: list[float | None] = field(default_factory=list)

    @property
    def median(self) -> float | None:
        """Of the runs that measured their cell; None when none did."""
        known = [seconds for seconds in self.overheads if seconds is not None]
        return statistics.median(known) if known else None


def main() -> int:
    """Print the overheads; exit 1 when a run did not measure its cell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    runs = parser.parse_args().runs
    engines = [Engine("embedded", _our_command)]
    if checkout := os.environ.get("CBT_HOME"):
        home = Path(checkout).resolve()
        engines.append(
            Engine("upstream", lambda path: _upstream_command(home, path), UPSTREAM_LIMIT_S)
        )
    for _ in range(runs):
        for engine in engines:
            engine.overheads.append(_overhead_s(engine))
    _print(engines)
    return 0 if all(None not in engine.overheads for engine in engines) else 1


def _our_command(directory: Path) -> list[str]:
    config = directory / "campaign.yaml"
    config.write_text(_OURS.format(directory=directory, seconds=SECONDS))
    # Else CBT_HOME would be the engine here too.
    ours = [sys.executable, str(ROOT / "cbt.py"), "--cbt", "embedded"]
    return [*ours, "-a", str(directory / "archive"), str(config)]


def _upstream_command(home: Path, directory: Path) -> list[str]:
    config, conf = directory / "campaign.yaml", directory / "ceph.conf"
    config.write_text(_UPSTREAM.format(directory=directory, seconds=SECONDS))
    conf.write_text(_UPSTREAM_CONF.format(directory=directory))
    core_pattern = directory / "core_pattern"
    core_pattern.touch()
    for name, script in _STAND_INS.items():
        program = directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(script)
        program.chmod(0o755)
    return [
        # Whatever ends this process, nothing of the namespaces outlives it.
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"),
        *("sh", "-c", _ISOLATE, "sh", str(core_pattern)),
        *("env", f"PATH={directory / 'bin'}:{os.environ['PATH']}"),
        *(sys.executable, str(home / "cbt.py"), "-a", str(directory / "archive")),
        *("-c", str(conf), str(config)),
    ]


def _overhead_s(engine: Engine) -> float | None:
    """Seconds beyond the measured ones, or None, with the end of its output on stderr."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        directory = Path(name)
        command = engine.command(directory)
        output = directory / "output"
        start = time.monotonic()
        failure = _run(command, output, engine.limit_s)
        elapsed = time.monotonic() - start
        failure = failure or _not_measured(directory / "archive")
        if failure is None:
            return elapsed - SECONDS
        print(output.read_text(errors="replace")[-3000:], file=sys.stderr)
        print(f"The {engine.name} run failed: {failure}.", file=sys.stderr)
        return None


def _run(command: Sequence[str], output: Path, limit_s: float | None) -> str | None:
    """Run to the end, or kill it at its limit; say what went wrong."""
    with output.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it was killed after {limit_s:.0f} s"
    return f"it ended with exit status {done.returncode}" if done.returncode else None


def _not_measured(archive: Path) -> str | None:
    """Say why fio did not read for as long as it was told to: upstream ends with 0 even then."""
    outputs = list(archive.glob("results/**/json_output.*"))
    if not outputs:
        return "its archive holds no json_output"
    for path in outputs:
        try:
            sides = [side for job in parse_output(path.read_bytes()).jobs for side in job.sides]
        except Malformed as error:
            return f"{path.name} {error}"
        read_s = max((side.runtime_s for side in sides if side.ios), default=0.0)
        if read_s < 0.99 * SECONDS:
            return f"{path.name} has {read_s:.1f} s of IO in place of {SECONDS} s"
    return None


def _print(engines: Sequence[Engine]) -> None:
    table = Table(title=f"Seconds beyond the {SECONDS} s that are measured", title_justify="left")
    for column in ("engine", "runs", "median", "ratio to upstream"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    reference = next((engine.median for engine in engines if engine.name == "upstream"), None)
    for engine in engines:
        shown = " ".join("failed" if s is None else f"{s:.1f}" for s in engine.overheads)
        median = engine.median
        ratio = f"{median / reference:.2f}" if median is not None and reference else ""
        table.add_row(engine.name, shown, "" if median is None else f"{median:.1f}", ratio)
    console = Console()
    console.print(table)
    if len(engines) == 1:
        console.print("CBT_HOME names no upstream checkout, so there is nothing beside it.")


if __name__ == "__main__":
    if shutil.which("ceph-osd") is None:
        sys.exit("ceph-osd is missing; install ceph-osd, ceph-mon, ceph-mgr, ceph-common, fio")
    sys.exit(main())
