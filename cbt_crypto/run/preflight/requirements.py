"""What every campaign needs of its hosts: programs, users, room."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.hosts import directories
from cbt_crypto.hosts.devices import lvm_and_md
from cbt_crypto.hosts.devices.destroy import device_guards
from cbt_crypto.hosts.remote import fan_out, is_local
from cbt_crypto.hosts.requirement import Requirement, program_needed, rbd_engine
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import cell_site, drives_of, site_of
from cbt_crypto.run.cell.neighbours import hosts_of
from cbt_crypto.run.targets.choice import target_of


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
    if collectl:
        needs.append(program_needed("collectl", hosts_with(site, collectl.nodes)))
    if perf:
        needs.append(program_needed(perf.perf_cmd, hosts_with(site, perf.nodes)))
    if any(cell.scenario.needs_cluster for cell in cells):
        for command in (cluster.ceph_cmd, cluster.rbd_cmd):
            needs.append(program_needed(shlex.split(command)[0], (site.head,)))
        needs += target_of(cluster).requirements(campaign, site, cells)
    scenarios = {(cell.scenario.name, cell.scenario.drive_name): cell.scenario for cell in cells}
    for scenario in scenarios.values():
        site_of_cell = cell_site(cluster, scenario)
        for program in scenario.required_programs():
            needs.append(program_needed(program, site_of_cell.active_clients))
            if scenario.needs_cluster and program != "rados":
                needs.append(rbd_engine(program, site_of_cell.active_clients))
        needs += scenario.requirements(site_of_cell)
    return list(dict.fromkeys(needs))


def site_with_drives(campaign: Campaign, cells: Sequence[Cell]) -> Site:
    """All places that `cells` work on."""
    used = {cell.scenario.drive_name for cell in cells}
    drives = tuple(drive for drive in drives_of(campaign.cluster) if drive.name in used)
    return replace(site_of(campaign.cluster), drives=drives)


def hosts_with(site: Site, roles: Iterable[str]) -> tuple[str, ...]:
    """The hosts that have one of these roles, each once."""
    return tuple(dict.fromkeys(host for role in roles for host in site.role(role)))


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
