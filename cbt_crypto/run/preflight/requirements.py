"""What every campaign needs of its hosts: programs, users, room."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts import own_directory
from cbt_crypto.hosts.devices import logical_volumes
from cbt_crypto.hosts.devices.guard import device_guards
from cbt_crypto.hosts.execution import fan_out, is_local
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.layout import cell_site, drives_of, site_of
from cbt_crypto.run.cell.neighbours import hosts_of
from cbt_crypto.run.targets import existing

#: Program -> the package that has it, for apt and, where it is another, for dnf.
_PACKAGES = {
    "ceph": "ceph-common",
    "rbd": "ceph-common",
    "rados": "ceph-common",
    "ceph-mon": "ceph-mon",
    "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
    "ceph-authtool": "ceph-common",
    "ceph-conf": "ceph-common",
    "monmaptool": "ceph-base",
    "osdmaptool": "ceph-base",
    "python3": "python3",
    "collectl": "collectl (dnf: from EPEL)",
    "etcd": "etcd-server (dnf: etcd)",
    "fio": "fio (dnf: and fio-engine-rbd)",
    "scp": "openssh-client (dnf: openssh-clients)",
    "pdsh": "pdsh (dnf: pdsh-rcmd-ssh, from EPEL)",
    "pdcp": "pdsh (dnf: pdsh-rcmd-ssh, from EPEL)",
    "perf": "linux-perf (dnf: perf)",
    "stress-ng": "stress-ng",
}
#: Program -> its column in the table of `check`: its own, that of its package, or Ceph's.
_COLUMNS = {
    **dict.fromkeys(_PACKAGES, "ceph"),
    **{name: name for name in ("collectl", "perf", "python3")},
    "pdcp": "pdsh",
    "scp": "pdsh",
}


def device_needs(sites: Sequence[Site]) -> list[Requirement]:
    """A guard for each device that OSDs or drives are on at any of these places, and lvm2."""
    if not sites:
        return []
    osds = dict.fromkeys(osd for site in sites for osd in site.osds)
    everywhere = replace(sites[0], osds=tuple(osds))
    hosts = tuple(dict.fromkeys(osd.host for osd in osds if osd.disk))
    lvm2 = [Requirement("lvm2", hosts, logical_volumes.REQUIREMENT, "devices")] if hosts else []
    return [*lvm2, *device_guards(everywhere, everywhere.wipe)]


def requirements(campaign: Campaign, cells: Sequence[Cell]) -> list[Requirement]:
    """What the engine, the monitoring and the scenarios need, whatever the configuration."""
    cluster, site = campaign.cluster, site_with_drives(campaign, cells)
    remote = tuple(host for host in site.hosts if not is_local(host))
    needs = [
        _program("python3", site.hosts),
        _program("pdcp" if fan_out() == "pdsh" else "scp", remote),
        _program("collectl", _hosts(site, campaign.monitoring.collectl.nodes)),
        _tmp_dir(cluster.tmp_dir, site),
    ]
    if cluster.neighbours:
        load = cluster.neighbours
        needs.append(_program(load.stress_cmd, hosts_of(load, site)))
    perf = campaign.monitoring.perf
    if perf:
        needs.append(_program(perf.perf_cmd, _hosts(site, perf.nodes)))
    if any(cell.scenario.needs_cluster for cell in cells):
        needs += _cluster_programs(cluster, site)
        needs += existing.requirements(cluster, site, cells) if cluster.use_existing else []
    scenarios = {(cell.scenario.name, cell.scenario.drive_name): cell.scenario for cell in cells}
    for scenario in scenarios.values():
        own = cell_site(cluster, scenario)
        for program in scenario.required_programs():
            needs.append(_program(program, own.active_clients))
            if scenario.needs_cluster and program != "rados":
                needs.append(_rbd_engine(program, own.active_clients))
        needs += scenario.requirements(own)
    return list(dict.fromkeys(needs))


def site_with_drives(campaign: Campaign, cells: Sequence[Cell]) -> Site:
    """All places that `cells` work on."""
    used = {cell.scenario.drive_name for cell in cells}
    drives = tuple(drive for drive in drives_of(campaign.cluster) if drive.name in used)
    return replace(site_of(campaign.cluster), drives=drives)


def _cluster_programs(cluster: ClusterSection, site: Site) -> list[Requirement]:
    """Ceph's: its commands, and its daemons where the campaign deploys them."""
    needs = [
        _program(shlex.split(command)[0], (site.head,))
        for command in (cluster.ceph_cmd, cluster.rbd_cmd)
    ]
    if not cluster.use_existing:
        tools = ("ceph-authtool", "monmaptool", "osdmaptool")
        needs += [
            _librados(cluster.ceph_cmd, site.head),
            *(_program(program, site.mons) for program in (cluster.ceph_mon_cmd, *tools)),
            *_auth_cipher(cluster, site),
            *(_program(program, site.mgrs) for program in (cluster.ceph_mgr_cmd, "ceph-conf")),
            _program(cluster.ceph_osd_cmd, site.osd_hosts),
        ]
    return needs


def _auth_cipher(cluster: ClusterSection, site: Site) -> list[Requirement]:
    """That the release can make such keys; those that cannot choose make aes."""
    if cluster.auth_cipher in (None, "aes"):
        return []
    sentence = f"ceph-authtool makes no keys of {cluster.auth_cipher}; leave auth_cipher out"
    script = (
        f"if ceph-authtool --gen-print-key --key-type {cluster.auth_cipher} >/dev/null 2>&1\n"
        f"then echo ok; else echo {shlex.quote(sentence)}; fi"
    )
    return [Requirement("auth_cipher", site.mons, script)]


def _hosts(site: Site, roles: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for role in roles for host in site.role(role)))


def _root(campaign: Campaign, stacks: Sequence[Stack], site: Site) -> list[Requirement]:
    """Root where block devices or a named overlay need it."""
    named = {overlay.name for stack in stacks for overlay in stack.named if overlay.needs_root}
    on_devices = site.drives or any(not osd.is_file for osd in site.osds)
    devices = {"block devices"} if on_devices else set()
    if not named | devices:
        return []
    hosts = tuple(dict.fromkeys((*site.storage_hosts, *(site.clients if named else ()))))
    reason = f"needs root for {', '.join(sorted(named | devices))}"
    sentence = f"{reason}; use a root user, or give {campaign.cluster.user or 'yours'} sudo "
    sentence += "without a password"
    script = f'[ "$(id -u)" = 0 ] || [ -n "$SUDO" ] && echo ok || echo {shlex.quote(sentence)}'
    return [Requirement("root", hosts, script, "sudo")]


def _program(program: str, hosts: tuple[str, ...]) -> Requirement:
    package = _PACKAGES.get(program)
    cure = f"install {package}" if package else "name it in the file by its whole path"
    sentence = f"{program} is missing; {cure}"
    script = (
        f"command -v {shlex.quote(program)} >/dev/null && echo ok || echo {shlex.quote(sentence)}"
    )
    return Requirement(program, hosts, script, _COLUMNS.get(program, "tools"))


def _librados(ceph_cmd: str, head: str) -> Requirement:
    script = f"""\
ceph=$(command -v {shlex.quote(ceph_cmd)}) || {{ echo ok; exit 0; }}
python=$(sed -n '1s/^#! *//p' "$ceph")
${{python:-python3}} -c 'import rados' 2>/dev/null && echo ok ||
    echo "Python's rados module is missing; install python3-rados\""""
    return Requirement("librados", (head,), script, "ceph")


def _rbd_engine(fio: str, hosts: tuple[str, ...]) -> Requirement:
    script = f"""\
command -v {shlex.quote(fio)} >/dev/null || {{ echo ok; exit 0; }}
if {shlex.quote(fio)} --enghelp 2>&1 | grep -qw rbd; then echo ok
else echo 'fio has no rbd engine; install one that has (dnf: fio-engine-rbd)'; fi"""
    return Requirement(f"{fio} with rbd", hosts, script)


def _tmp_dir(tmp_dir: str, site: Site) -> Requirement:
    script = f"if said=$({{\n{own_directory.check(tmp_dir)}}} 2>&1); then echo ok\n"
    script += 'else echo "$said" | tail -n 1; fi'
    return Requirement("tmp_dir", site.hosts, script, "space")
