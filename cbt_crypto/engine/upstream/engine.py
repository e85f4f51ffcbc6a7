"""An upstream checkout as an Engine."""

from __future__ import annotations

from functools import partial

from cbt_crypto.engine.contract import Engine
from cbt_crypto.engine.upstream.benchmark import UpstreamBenchmark
from cbt_crypto.engine.upstream.cell import native
from cbt_crypto.engine.upstream.ceph import ExistingUpstreamCeph, UpstreamCeph
from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.engine.upstream.common import Common
from cbt_crypto.engine.upstream.modules import load
from cbt_crypto.engine.upstream.monitoring import Monitoring
from cbt_crypto.engine.upstream.requirements import problems, requirements
from cbt_crypto.engine.upstream.settings import Settings


def upstream(checkout: Checkout) -> Engine:
    """The engine. Raises UsageError for a checkout that cannot be imported."""
    loaded = load(checkout.path)
    common = Common(loaded.common, loaded.settings)
    settings = Settings(loaded.settings, loaded.perf_by_pid_files)
    return Engine(
        name="upstream",
        version=checkout.version,
        commit=checkout.commit,
        settings=settings,
        common=common,
        monitoring=Monitoring(loaded.monitoring, common, settings),
        Ceph=partial(UpstreamCeph, loaded, common, settings),
        ExistingCeph=partial(ExistingUpstreamCeph, loaded, common, settings),
        Benchmark=partial(UpstreamBenchmark, loaded, common),
        checkout=checkout.path,
        native=partial(native, loaded, common),
        problems=lambda campaign: problems(campaign, common, loaded),
        requirements=requirements,
    )
