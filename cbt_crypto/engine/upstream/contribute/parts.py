"""The parts of the contribution: each is one pull request, of one commit, on its own branch.

Files that are for upstream alone are below `files/<part>/`; `.in` keeps them out of our own checks.
They import nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cbt_crypto.engine.upstream.contribute.edits import Edit

FILES = Path(__file__).resolve().parent / "files"
_PULL_REQUEST = "PULL_REQUEST.md.in"
_CEPH = "cluster/ceph.py"
#: There, where the OSDs are up, and nothing is measured yet.
_BEFORE_LOAD = r" +# Disable scrub and wait .*"
_COMPARISON = "post_processing/reports/comparison_report_generator.py"


@dataclass(frozen=True)
class Part:
    """One pull request. `limit`: lines that it may add and remove, tests and docs included."""

    key: str
    branch: str
    subject: str
    body: str
    limit: int
    edits: tuple[Edit, ...]

    def files(self) -> Mapping[str, str]:
        """Path in the checkout -> text, of the files that are new."""
        return {
            path.relative_to(FILES / self.key).as_posix()[: -len(".in")]: path.read_text("utf-8")
            for path in sorted((FILES / self.key).rglob("*.in"))
            if path.name != _PULL_REQUEST
        }

    def pull_request(self) -> str:
        """The text for the pull request: what, why, how it was tried, and a log."""
        return (FILES / self.key / _PULL_REQUEST).read_text("utf-8")


def _of_cluster(module: str, key: str) -> tuple[Edit, ...]:
    """Makes cluster/<module>.py's one class from that key of the test plan's cluster section."""
    name = module.capitalize()
    return (
        Edit(_CEPH, "after", r"from \.cluster import Cluster", f"from .{module} import {name}\n"),
        Edit(_CEPH, "after", r" +self\.disable_bal = .*",
             f"        self.{module} = {name}(config.get({key!r}))\n"),
    )  # fmt: skip


def _of_osds(module: str, check: str) -> tuple[Edit, ...]:
    """Lets that object change each OSD's command, and check the OSDs that are up."""
    return (
        Edit(_CEPH, "after", r"            phost = sshtarget\(.*, self\.host\)",
             f"            ceph_osd_cmd = self.cl_obj.{module}.get_osd_command("
             "ceph_osd_cmd, self.devnumstr)\n"),
        Edit(_CEPH, "before", _BEFORE_LOAD,
             f"        self.{module}.{check}(self.pid_dir, list(self.config.get('osds')), "
             "self.config.get('osds_per_node'))\n\n"),
    )  # fmt: skip


PLUGINS = Part(
    key="A",
    branch="plugins",
    subject="cbt: Find clusters, benchmarks and report steps of other packages",
    body="""\
cbt.py makes a Ceph cluster whatever the test plan says, and a comment there asks for a cluster
factory. Whoever wants another kind of cluster, a benchmark or a report has to change this
repository. With this, a package that is installed beside CBT announces them as entry points, and
a test plan names them: docs/Plugins.md.

Test plans that name none run as before: no package is imported for them.""",
    limit=250,
    edits=(
        Edit("cbt.py", "instead", r"from cluster\.ceph import Ceph",
             "import clusterfactory\nimport plugins\n"),
        Edit("cbt.py", "instead", r" +# FIXME: .*ClusterFactory.*", ""),
        Edit("cbt.py", "instead", r"    cluster = Ceph\(settings\.cluster\)",
             "    cluster = clusterfactory.get_object(settings.cluster)\n"
             "    steps = plugins.get_report_steps((settings.report or {}).get('steps') or [])\n"),
        Edit("cbt.py", "after", r" +b\.run\(\)",
             "        for step in steps:\n            step(archive_dir)\n"),
        Edit("benchmarkfactory.py", "before", r"import settings", "import plugins\n"),
        Edit("benchmarkfactory.py", "before", r"    try:",
             "    if benchmark not in benchmarks:\n"
             "        plugin = plugins.find(plugins.BENCHMARKS, benchmark)\n"
             "        return plugin(archive, cluster, bconfig) if plugin else None\n"),
        Edit("settings.py", "after", r"report = \{\}",
             "# Path of the test plan that was read\ntest_plan = ''\n"),
        Edit("settings.py", "after", r"    global .*, report",
             "    global test_plan\n    test_plan = ctx.config_file\n"),
        Edit("settings.py", "after", r"        cluster\['conf_file'\] = ctx\.conf",
             "    # Clusters of other packages (docs/Plugins.md) find their conf file themselves.\n"
             "    if cluster.get('type', 'ceph') != 'ceph':\n"
             "        return\n"),
    ),
)  # fmt: skip

LUKS = Part(
    key="B1",
    branch="luks",
    subject="cluster: Put LUKS below OSDs, and check that it is in force",
    body="""\
What does encryption at rest cost, and what do dm-crypt's flags change? Until now mappings had to be
made by hand beside CBT, and a run whose OSDs had not been on them looked like any other.

With luks in the cluster section CBT formats and opens a device for each OSD, asks device-mapper
and the kernel whether each OSD is on its mapping, and closes all of it before the next cluster. A
device is formatted only when what that overwrites is zero, and cleared only when CBT's key opens
it.""",
    limit=450,
    edits=(
        *_of_cluster("luks", "luks"),
        *_of_osds("luks", "check"),
        Edit(_CEPH, "before", r" +# Cleanup old junk and create .*",
             "        self.luks.take_down()\n\n"),
        Edit(_CEPH, "before", r" +# Build the cluster",
             "        self.luks.make(self.config.get('osds_per_node'))\n\n"),
    ),
)  # fmt: skip

MESSENGER = Part(
    key="B2",
    branch="messenger-modes",
    subject="cluster: Deploy with a messenger mode, and check that it is in force",
    body="""\
What does encryption on the wire cost? To measure it, the six ms_*_mode options are not enough:
without cephx clients wait for ever, and a monmap made with --add has no messenger v2 addresses, so
that nothing to or from a monitor is encrypted, while the benchmark runs and shows no difference.

With messenger_mode in the cluster section CBT sets all that it takes, and reads the OSDs' byte
counters before it goes on. Without the key nothing about a deployment changes.""",
    limit=450,
    edits=(
        *_of_cluster("messenger", "messenger_mode"),
        Edit(_CEPH, "after", r" +common\.pdcp\(nodes, '', conf_file, .*",
             "        self.messenger.append_to_conf(nodes, self.tmp_conf, self.get_mon_hosts())\n"),
        Edit(_CEPH, "instead", r" +cmd = cmd \+ ' --add .*",
             "                cmd = cmd + self.messenger.get_monmap_option(mon, addr)\n"),
        Edit(_CEPH, "before", _BEFORE_LOAD,
             "        number_of_osds = self.config.get('osds_per_node')"
             " * len(self.config.get('osds'))\n"
             "        self.messenger.check(self.ceph_cmd, self.tmp_conf, number_of_osds)\n\n"),
    ),
)  # fmt: skip

CPUSETS = Part(
    key="B3",
    branch="cpusets",
    subject="cluster: Give CPUs to OSDs and clients, and check that they keep to them",
    body="""\
How many cores does an OSD need, beside virtual machines on the same node? crimson_cpusets answers
that for crimson; for the classic OSD there was only a wrapper script in place of ceph-osd.

With cpusets in the cluster section OSDs and clients are started by taskset. Hosts are asked for
the CPUs before a cluster is made, and the kernel is asked where the OSDs' threads may run before
anything is measured. Without the key commands are what they were.""",
    limit=450,
    edits=(
        *_of_cluster("cpusets", "cpusets"),
        *_of_osds("cpusets", "check_osds"),
        Edit(_CEPH, "before", r"        # unmount any rbd volumes",
             "        self.cpusets.check_hosts(self.config.get('osds_per_node'))\n\n"),
        Edit("benchmark/librbdfio.py", "instead", r" +self\.cmd_path = config\.get\('cmd_path'.*",
             "        self.cmd_path = cluster.cpusets.get_client_command("
             "config.get('cmd_path', '/usr/bin/fio'))\n"),
        Edit("benchmark/radosbench.py", "instead", r" +cmd=self\.cmd_path_full,",
             "                    cmd=self.cluster.cpusets.get_client_command("
             "self.cmd_path_full),\n"),
    ),
)  # fmt: skip

PERCENT = Part(
    key="B4",
    branch="percent-of-baseline",
    subject="post_processing: Compare throughput, latency and CPU at equal iodepth",
    body="""\
The comparison report compares maxima, which can be at one depth in one archive and at another in
the next, and says nothing of CPU. With this it has a second table: percent of the baseline at each
iodepth, for throughput, latency and CPU time for each I/O. Both archives are read by the result
classes as before; the other tables do not change.""",
    limit=450,
    edits=(
        Edit(_COMPARISON, "before", r"from post_processing\.plotter\.directory_comp.*",
             "from post_processing.percent_of_baseline import get_percent_lines\n"),
        Edit(_COMPARISON, "before", r"        self\._generate_table_rows\(data_tables\)",
             "        percent_lines: list[str] = get_percent_lines("
             "self._archive_directories, self._data_files)\n"),
        Edit(_COMPARISON, "before", r"    def _add_configuration_yaml_files\(self\) -> None:",
             "        for line in percent_lines:\n"
             "            self._report.new_line(text=line)\n"
             "        self._report.new_line()\n\n"),
    ),
)  # fmt: skip

PARTS: Mapping[str, Part] = {
    part.key: part for part in (PLUGINS, LUKS, MESSENGER, CPUSETS, PERCENT)
}
