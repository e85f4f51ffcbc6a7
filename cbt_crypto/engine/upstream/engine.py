"""An upstream checkout as an Engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

from cbt_crypto.cluster_overlays.ceph_build import CephBuild
from cbt_crypto.cluster_overlays.pools import Pools
from cbt_crypto.engine.contract import Engine
from cbt_crypto.engine.embedded.common import Benchmark
from cbt_crypto.engine.upstream import checkout as checkouts
from cbt_crypto.engine.upstream.cell import Monitoring, NativeBenchmark
from cbt_crypto.engine.upstream.checkout import Checkout, Modules, Settings
from cbt_crypto.engine.upstream.cluster import ExistingUpstreamCeph, UpstreamCeph
from cbt_crypto.engine.upstream.execution import Common
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.requirement import Requirement
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.file.checks import origin_of
from cbt_crypto.plan.file.cluster import pool_options
from cbt_crypto.plan.layout import site_of


def requirements(campaign: Campaign) -> list[Requirement]:
    """What hosts must offer for every command of upstream, and for a deployment."""
    site = site_of(campaign.cluster)
    needs = [Requirement("sudo for upstream", site.hosts, shell.call(__file__, "has_sudo"))]
    daemons = origin_of(campaign.cluster).daemon_hosts(site)
    if not daemons:
        return needs
    return [
        *needs,
        Requirement("limits for upstream", daemons, shell.call(__file__, "has_limits")),
        _program("ceph-authtool", "ceph-common", (site.head,)),
        _program("monmaptool", "ceph-common", (site.head,)),
    ]


def _program(program: str, package: str, hosts: tuple[str, ...]) -> Requirement:
    path = f"/usr/bin/{program}"
    sentence = f"{path} is missing, where upstream CBT calls it; install {package}"
    return Requirement(program, hosts, f"[ -x {path} ] && echo ok || echo {shlex.quote(sentence)}")


def problems(campaign: Campaign, common: Common, modules: Modules) -> Iterator[str]:
    """A sentence for each thing that this checkout would do wrong in silence, or lacks here."""
    yield from _benchmarks(campaign, modules)
    if any(isinstance(overlay, CephBuild) and overlay.prefix
           for overlays in campaign.configurations.values() for overlay in overlays):  # fmt: skip
        yield (
            "ceph_build: upstream CBT takes the tools of a deployment from /usr/bin, whichever "
            "daemons it is given; say --cbt embedded"
        )
    if campaign.groups:
        yield (
            "cluster.layout: side_by_side is deployed by this program's own engine alone; say "
            "--cbt embedded"
        )
    for name, profile in campaign.cluster.erasure_profiles.items():
        if profile.erasure_stripe_unit or profile.erasure_plugin != "jerasure":
            yield (
                f"cluster.erasure_profiles.{name}: CBT knows erasure_k and erasure_m alone; leave "
                "out erasure_plugin and erasure_stripe_unit, or say --cbt embedded"
            )
    yield from _pools(campaign)
    site = site_of(campaign.cluster)
    user = f"{campaign.cluster.user}@" if campaign.cluster.user else ""
    local = [host for host in site.hosts if common.get_localnode(f"{user}{host}")]
    other = [host for host in site.hosts if host not in local]
    if local and other and common.get_localnode(f"{user}{local[0]},{user}{other[0]}"):
        yield (
            f"{local[0]}: this checkout of CBT runs a command for several hosts on the first "
            "alone when that is this machine; name a user in the cluster section, so that it is "
            "reached by ssh too"
        )
    if len(local) > 1:
        yield f"{', '.join(local)}: are one machine; upstream CBT wants one name for it"


def _pools(campaign: Campaign) -> Iterator[str]:
    for name, pool in campaign.cluster.pool_profiles.items():
        if pool_options(pool) or pool.allow_ec_optimizations:
            yield (
                f"cluster.pool_profiles.{name}: CBT knows neither compression nor optimizations of "
                "pools; leave them out, or say --cbt embedded"
            )
    overlays = (each for of in campaign.configurations.values() for each in of)
    if any(isinstance(overlay, Pools) for overlay in overlays):
        yield "pools: is made by this program's own engine alone; say --cbt embedded"


def _benchmarks(campaign: Campaign, modules: Modules) -> Iterator[str]:
    for name in campaign.scenarios:
        if name not in checkouts.BENCHMARKS:
            continue
        if missing := checkouts.missing_library(modules.path, name):
            yield missing
        elif name == "librbdfio" and _has_total_iodepth(campaign, modules):
            yield (
                "benchmarks.librbdfio: this checkout of CBT does not know total_iodepth; give "
                "iodepth, which is per volume, or use a checkout of its branch main"
            )


def _has_total_iodepth(campaign: Campaign, modules: Modules) -> bool:
    scenarios = campaign.scenarios["librbdfio"]
    wanted = any(getattr(scenario, "total_iodepth", None) for scenario in scenarios)
    return wanted and not modules.divides_total_iodepth


def upstream(checkout: Checkout) -> Engine:
    """The engine. Raises UsageError for a checkout that cannot be imported."""
    modules = checkouts.import_checkout(checkout.path)
    common = Common(modules.common, modules.settings)
    settings = Settings(modules.settings, modules.perf_by_pid_files)
    return Engine(
        name="upstream",
        version=checkout.version,
        commit=checkout.commit,
        settings=settings,
        common=common,
        monitoring=Monitoring(modules.monitoring, common, settings),
        Ceph=partial(UpstreamCeph, modules, common, settings),
        ExistingCeph=partial(ExistingUpstreamCeph, modules, common, settings),
        Benchmark=partial(Benchmark, execution=common),
        checkout=checkout.path,
        native=partial(NativeBenchmark, modules, common),
        problems=lambda campaign: problems(campaign, common, modules),
        requirements=requirements,
    )
