"""What must hold before anything is touched: tools, hosts, devices, and what overlays require."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from cbt_crypto.benchmarks.upstream import OfUpstream
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf, directories
from cbt_crypto.hosts.devices import lvm_and_md
from cbt_crypto.hosts.devices.destroy import device_guards
from cbt_crypto.hosts.remote import PDSH_PROGRAMS, fan_out, is_local
from cbt_crypto.hosts.requirement import Requirement, program_needed, rbd_engine
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import at
from cbt_crypto.plan.layout import cautions, cell_site, copies, drives_used, site_of, sites_of
from cbt_crypto.run.cell.conditions import hosts_of
from cbt_crypto.run.preflight.survey import HostFinding, facts, survey, version_facts
from cbt_crypto.run.targets import target_of


def device_needs(sites: Sequence[Site]) -> list[Requirement]:
    """A guard for each device that OSDs or drives are on at any of these places, and lvm2."""
    if not sites:
        return []
    osds = dict.fromkeys(osd for site in sites for osd in site.osds)
    everywhere = replace(sites[0], osds=tuple(osds))
    hosts = tuple(dict.fromkeys(osd.host for osd in osds if osd.disk))
    lvm2 = [Requirement("lvm2", hosts, lvm_and_md.REQUIREMENT, "devices")] if hosts else []
    return [*lvm2, *device_guards(everywhere, everywhere.wipe)]


def requirements(campaign: Campaign, cells: Sequence[Cell]) -> list[Requirement]:
    """What the engine, the monitoring and the scenarios need, whatever the configuration."""
    cluster, site = campaign.cluster, site_with_drives(campaign, cells)
    remote = tuple(host for host in site.hosts if not is_local(host))
    needs = [
        program_needed("python3", site.hosts),
        program_needed("pdcp" if fan_out() == "pdsh" else "scp", remote),
        _tmp_dir(cluster.tmp_dir, site),
    ]
    if cluster.neighbours:
        load = cluster.neighbours
        needs.append(program_needed(load.stress_cmd, hosts_of(load, site)))
    collectl, perf = campaign.monitoring.collectl, campaign.monitoring.perf
    monitors = [("collectl", collectl.nodes)] if collectl else []
    monitors += [(perf.perf_cmd, perf.nodes)] if perf else []
    stacks = campaign.monitoring.stacks
    monitors += [(stacks.perf_cmd, ["osds"])] if stacks else []
    needs += [program_needed(program, site.role(*roles)) for program, roles in monitors]
    if any(cell.scenario.needs_cluster for cell in cells):
        for command in (cluster.ceph_cmd, cluster.rbd_cmd):
            needs.append(program_needed(shlex.split(command)[0], (site.head,)))
        needs += target_of(cluster).requirements(campaign, site, cells)
    scenarios = {
        (scenario.name, scenario.drive_name, scenario.devices): scenario
        for scenario in (cell.scenario for cell in cells)
    }
    for scenario in scenarios.values():
        site_of_cell = cell_site(cluster, scenario)
        for program in scenario.required_programs():
            needs.append(program_needed(program, site_of_cell.active_clients))
            if scenario.needs_rbd_engine:
                needs.append(rbd_engine(program, site_of_cell.active_clients))
        needs += scenario.requirements(site_of_cell)
    return list(dict.fromkeys(needs))


def site_with_drives(campaign: Campaign, cells: Sequence[Cell]) -> Site:
    """All places that `cells` work on."""
    return replace(site_of(campaign.cluster), drives=drives_used(campaign, cells))


def root_needed(campaign: Campaign, stacks: Sequence[Stack], site: Site) -> list[Requirement]:
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


def _tmp_dir(tmp_dir: str, site: Site) -> Requirement:
    script = f"if said=$({{\n{directories.check(tmp_dir)}}} 2>&1); then echo ok\n"
    script += 'else echo "$said" | tail -n 1; fi'
    return Requirement("tmp_dir", site.hosts, script, "space")


_FIXES = "cbt-crypto check --fix-commands FILE prints the commands that install what is missing"


def check(campaign: Campaign, engine: Engine, cells: Sequence[Cell]) -> list[HostFinding]:
    """Check what `cells` need on all hosts at once; UsageError with a line for each unmet need."""
    findings = survey_campaign(campaign, engine, cells)
    unmet = [f"{finding.host}: {finding.error}" for finding in findings if finding.error]
    _raise([*unmet, *how_to_fix(findings)])
    return findings


def how_to_fix(findings: Iterable[HostFinding]) -> list[str]:
    """Name the command that prints what installs what is missing; nothing where nothing is."""
    is_missing = any(" is missing; install " in (finding.error or "") for finding in findings)
    return [_FIXES] if is_missing else []


def survey_campaign(campaign: Campaign, engine: Engine, cells: Sequence[Cell]) -> list[HostFinding]:
    """What the check finds, errors included. Raises UsageError where no host can be asked."""
    configurations = list(dict.fromkeys(cell.configuration for cell in cells))
    _raise([*_local_tools(campaign, engine), *_conf_problems(campaign, configurations)])
    _raise(engine.problems(campaign))
    check_cells(campaign, cells, engine)
    for addresses in campaign.cluster.mons.values():
        for address in addresses.values():
            ceph_conf.mon_vector(address)
    site = site_of(campaign.cluster)
    unknown = {
        host: "this name does not resolve; fix it in the file, or in DNS or /etc/hosts"
        for host in site.hosts
        if not is_local(host) and not _resolves(host)
    }
    reachable = [host for host in site.hosts if host not in unknown]
    wanted = [*needs_of(campaign, cells), *engine.requirements(campaign)]
    remote = engine.remote(campaign.cluster)
    answers = survey(remote, reachable, wanted) if reachable else []
    unnamed = [HostFinding(host, "ssh", "no", why) for host, why in unknown.items()]
    return [*unnamed, *answers, *of_file(campaign, cells)]


def of_file(campaign: Campaign, cells: Sequence[Cell]) -> list[HostFinding]:
    """What is to be said of the file, whatever hosts answer."""
    return [HostFinding(campaign.title, "", "", warning=w) for w in cautions(campaign, cells)]


def checks(campaign: Campaign, cells: Sequence[Cell], stacks: Sequence[Stack]) -> list[Requirement]:
    """All that is looked at on the hosts."""
    cluster, site = campaign.cluster, site_with_drives(campaign, cells)
    sites = [replace(one, drives=site.drives) for one in sites_of(campaign, cells)]
    needs: list[Requirement] = [
        *facts(site, cluster.user, _data_bytes_per_osd(campaign, cells)),
        *version_facts(_versions(campaign, cells)),
        *requirements(campaign, cells),
        *root_needed(campaign, stacks, site),
        *device_needs(sites),
    ]
    needs += [
        replace(need, column=overlay.name)
        for of_variant in sites
        for stack in stacks
        for overlay in stack.named
        for need in overlay.requirements(stack.below(overlay, of_variant))
    ]
    # Configurations that name the same overlay need the same.
    return list(dict.fromkeys(needs))


def needs_of(campaign: Campaign, cells: Sequence[Cell]) -> list[Requirement]:
    """What `cells` need, in all their configurations."""
    names = dict.fromkeys(cell.configuration for cell in cells)
    return checks(campaign, cells, [campaign.stacks[name] for name in names])


def _versions(campaign: Campaign, cells: Sequence[Cell]) -> dict[str, tuple[str, tuple[str, ...]]]:
    cluster, site = campaign.cluster, site_of(campaign.cluster)
    versions = {"ceph": (cluster.ceph_osd_cmd, site.osd_hosts)}
    if campaign.monitoring.collectl:
        versions["collectl"] = ("collectl", site.role(*campaign.monitoring.collectl.nodes))
    # The cells of all rounds have their scenario in common.
    for scenario in {id(cell.scenario): cell.scenario for cell in cells}.values():
        for program in scenario.required_programs():
            hosts = cell_site(cluster, scenario, whole=site).active_clients
            column = program if program in ("fio",) else "tools"
            versions[column] = (program, hosts)
    return versions


def _data_bytes_per_osd(campaign: Campaign, cells: Sequence[Cell]) -> int:
    """What the largest set of volumes of one cluster takes on each OSD, in bytes."""
    site = site_of(campaign.cluster)
    # Each group's volumes are on its own part of the OSDs.
    osds = len(site.osds) // max(1, len(campaign.groups))
    profiles = at(campaign.cluster).pool_profiles
    by_configuration: dict[str, dict[str, int]] = {}
    for cell in cells:
        volumes = by_configuration.setdefault(cell.configuration, {})
        for volume in cell.scenario.volumes(site):
            pool = profiles.get(volume.data_pool or volume.pool)
            volumes[volume.name] = round((volume.size_mb << 20) * copies(campaign.cluster, pool))
    most = max((sum(volumes.values()) for volumes in by_configuration.values()), default=0)
    return most // max(1, osds)


def _raise(problems: Iterable[str]) -> None:
    lines = list(dict.fromkeys(problems))
    if lines:
        raise UsageError("\n".join(lines))


def _local_tools(campaign: Campaign, engine: Engine) -> list[str]:
    remote = [host for host in site_of(campaign.cluster).hosts if not is_local(host)]
    # Upstream's engine calls pdsh by name; ours does without where there is none.
    needs_pdsh = engine.name != "embedded" or fan_out() == "pdsh"
    tools = ("ssh", *(PDSH_PROGRAMS if needs_pdsh else ("scp",)))
    wanted = tools if remote else ()
    return [
        f"{tool} is missing on this machine and {remote[0]} is not this machine; install "
        f"{'pdsh' if tool in PDSH_PROGRAMS else 'openssh-client'}"
        for tool in wanted
        if shutil.which(tool) is None
    ]


def _conf_problems(campaign: Campaign, names: Sequence[str]) -> list[str]:
    template = origin_of(campaign.cluster).conf_template
    if not template:
        return []
    conf = ceph_conf.read(Path(template))
    return [
        f'{template}: with configuration "{name}": {sentence}'
        for name in names
        for sentence in campaign.stacks[name].contradictions(conf)
    ]


def _resolves(host: str) -> bool:
    answer = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, check=False)
    lines = (line.partition(" ") for line in answer.stdout.splitlines())
    name = next((value for key, _, value in lines if key == "hostname"), host)
    try:
        socket.getaddrinfo(name, 22)
    except OSError:
        return False
    return True


def benchmarks_of_upstream(engine: Engine, cells: Sequence[Cell]) -> Iterator[str]:
    """A sentence for each benchmark that only an upstream checkout has, when this is none."""
    if engine.native:
        return
    wanted = (cell.scenario.name for cell in cells if isinstance(cell.scenario, OfUpstream))
    for name in dict.fromkeys(wanted):
        yield f"benchmarks.{name}: is upstream CBT's own; name a checkout of it with --cbt"


def check_cells(campaign: Campaign, cells: Sequence[Cell], engine: Optional[Engine] = None) -> None:
    """Raise UsageError for what the engine has not, or a cluster cannot be; looks at no host."""
    configurations = list(dict.fromkeys(cell.configuration for cell in cells))
    _raise(benchmarks_of_upstream(engine, cells) if engine else ())
    _raise(target_of(campaign.cluster).problems(campaign, configurations))
