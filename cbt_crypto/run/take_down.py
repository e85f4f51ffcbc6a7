"""Taking down what runs of an archive left on the hosts: exactly that, as the journal has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine import Engine
from cbt_crypto.errors import HostError, RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.run.journal import Deployment, Journal, left_over
from cbt_crypto.run.locks import holder
from cbt_crypto.run.locks.hosts import free_hosts
from cbt_crypto.run.targets.cluster import overlaid, take_down

Say = Callable[[str], None]
ChooseEngine = Callable[[Any], Engine]


def clear(archive: Path, engine_of: ChooseEngine, say: Say, insist: bool = False) -> int:
    """Take down what earlier runs of this archive left; return how many runs that were.

    `engine_of` gives the engine for a checkout, or None for the embedded one. The archive must be
    held. Raises UsageError for a run that is alive, or, unless the caller insists, that may be so
    on another machine; RunError for what cannot be taken down. The journal keeps it then.
    """
    deployments = left_over(archive)
    for deployment in deployments:
        _check_dead(archive, deployment, insist)
    for deployment in deployments:
        say(f"taking down what {_who(deployment)} left on {', '.join(deployment.hosts)}")
        marked_processes.end(deployment.run)
        checkout = Path(deployment.checkout) if deployment.checkout else None
        _clear_one(deployment, deployment.campaign(archive), engine_of(checkout))
        Journal(archive, deployment.run).end()
    return len(deployments)


def _check_dead(archive: Path, deployment: Deployment, insist: bool) -> None:
    dead = holder.is_dead(deployment.by)
    if dead is False:
        raise UsageError(
            f"{archive}: is of {holder.describe(deployment.by)}, which is running; wait for it or "
            "end it"
        )
    if dead is None and not insist:
        raise UsageError(
            f"{archive}: {holder.describe(deployment.by)} ran on another machine and did not take "
            f"everything down; if it is dead: cbt-crypto cleanup {archive}"
        )


def _clear_one(deployment: Deployment, campaign: Campaign, engine: Engine) -> None:
    stacks = [Stack(overlays) for overlays in campaign.configurations.values()]
    section = dict(campaign.document["cluster"])
    section.setdefault("tmp_dir", campaign.cluster.tmp_dir)
    engine.settings.cluster.clear()
    engine.settings.cluster.update(section)
    remote = Remote(engine.common, campaign.cluster.tmp_dir, campaign.cluster.user)
    try:
        take_down(overlaid(engine, section, stacks)[0])
        free_hosts(remote, site_of(campaign.cluster), deployment.run)
    except HostError as error:
        raise RunError(
            f"{error}; once that is mended, run the same command again: it takes down the rest"
        ) from error


def _who(deployment: Deployment) -> str:
    return "a run that ended early, " + holder.describe(deployment.by) + ","
