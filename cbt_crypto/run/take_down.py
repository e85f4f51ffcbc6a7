"""Tear down what killed runs left on the hosts, under the hosts' locks, and nothing else.

By the user's own state; by an archive's word only if he agreed. No code of an archive runs.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from cbt_crypto.archive.files import one_line, printable
from cbt_crypto.engine.choice import embedded
from cbt_crypto.engine.contract import Engine
from cbt_crypto.errors import CampaignError, HostError, RunError, UsageError
from cbt_crypto.hosts import marked_processes
from cbt_crypto.hosts.devices import destroy, rbd_images
from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import whole_site
from cbt_crypto.plan.side_by_side import engine_keys
from cbt_crypto.run import devices, journal, locks
from cbt_crypto.run.journal import Deployment, Journal, left_over, own_left_over, places_of
from cbt_crypto.run.locks import free_hosts, hosts_held, own_id
from cbt_crypto.run.targets import existing, target_of
from cbt_crypto.run.targets.cluster import overlaid

Say = Callable[[str], None]


@dataclass
class DryRun:
    """Takes the place of a Remote, and keeps what would have run: (step, host -> script)."""

    steps: list[tuple[str, HostScripts]] = field(default_factory=list)

    def run(
        self, scripts: HostScripts, what: str, timeout: Optional[float] = None
    ) -> dict[str, str]:
        """As of a Remote; every host answers nothing."""
        self.steps.append((what, dict(scripts)))
        return dict.fromkeys(scripts, "")

    def attempt(self, scripts: HostScripts, timeout: Optional[float], what: str) -> None:
        """As of a Remote."""
        self.run(scripts, what, timeout)


def to_clear(archive: Path, foreign: bool = False, forget: bool = False) -> list[Deployment]:
    """What is to be torn down, or forgotten, here; UsageError for an unknown, not `foreign`."""
    mine = own_left_over(archive)
    runs = {deployment.run for deployment in mine}
    of_others = [deployment for deployment in left_over(archive) if deployment.run not in runs]
    if of_others and not foreign:
        hosts = one_line(", ".join(of_others[0].hosts))
        raise UsageError(
            f"{archive}: says that {locks.describe(of_others[0].by)} left something on "
            f"{hosts}, but it is not one of your runs on this machine; "
            f"see it with cbt-crypto cleanup --foreign --plan {shlex.quote(str(archive))}"
        )
    if forget:
        return [*mine, *of_others]
    # What is asked about, shown and held is what is acted on: the hosts of the document.
    return [*mine, *(replace(each, hosts=places_of(each.campaign(archive))) for each in of_others)]


def clear(
    archive: Path, deployments: Sequence[Deployment], say: Say, insist: bool = False,
    is_gone: bool = False,
) -> None:  # fmt: skip
    """Tear them down, holding their hosts; the archive must be held.

    Raises UsageError for a run alive or hosts held, or, without `insist`, a run perhaps alive
    elsewhere, or, without `is_gone`, one that holds hosts still; RunError if not all is torn down.
    """
    for deployment in deployments:
        _check_dead(archive, deployment, insist)
    failed: Optional[CampaignError] = None
    for deployment in deployments:
        try:
            _clear_held(archive, deployment, say, is_gone)
        except KeyboardInterrupt:
            rest = "not all is torn down; run the same command again to tear down the rest"
            raise RunError(f"{archive}: interrupted, so {rest}") from None
        except CampaignError as error:  # what another run left may be on other hosts
            if failed is not None:
                say(str(failed))
            failed = error
    if failed is not None:
        raise failed


def _clear_held(archive: Path, deployment: Deployment, say: Say, is_gone: bool) -> None:
    campaign = deployment.campaign(archive)
    with _held(campaign, archive, deployment, is_gone):
        hosts = ", ".join(places_of(campaign))
        if not is_gone:
            existing.check_same(_remote(campaign), campaign, deployment.fsid)
        say(f"tearing down what {_who(deployment)} left on {hosts}")
        if deployment.is_own:
            marked_processes.end_run(deployment.run)
        gone = list(_gone(campaign))
        _clear_one(deployment, campaign, say)
        for sentence in (*gone, *_remains(campaign), *_unproved(deployment, campaign)):
            say(sentence)
    Journal(archive, deployment.run).end()


def show_plan(
    archive: Path, deployments: Sequence[Deployment], say: Say, commands: bool = False
) -> None:
    """Print what `clear` would remove, a line each; the commands by step and host if asked for."""
    for deployment in deployments:
        campaign = deployment.campaign(archive)
        say(f"what {_who(deployment)} left:")
        for host, left in places_of(campaign).items():
            say(f"  {host}: directory {left['tmp_dir']}")
            say(f"  {host}: processes with {left['mark']}")
            for device in left["devices"]:
                say(f"  {host}: what was written to {printable(device)}")
            if "overlays" in left:
                say(f"  {host}: what these overlays set up: {', '.join(left['overlays'])}")
        if commands:
            _show_commands(deployment, campaign, say)
    if not commands:
        say("-v prints the commands, too")


def _show_commands(deployment: Deployment, campaign: Campaign, say: Say) -> None:
    shown = DryRun()
    cluster = cluster_of(campaign)
    cluster.remote = shown
    _clear_target(cluster, shown, campaign, deployment)
    for what, scripts in shown.steps:
        for host, text in scripts.items():
            say(f"# {host}: {what}")
            say(printable(text))


def forget(
    archive: Path, deployments: Sequence[Deployment], say: Say, is_gone: bool = False
) -> None:
    """Give up what is left of them: hosts drop their claims, and no later start touches it.

    Raises UsageError for a run alive, or, without `is_gone`, perhaps alive elsewhere.
    """
    for deployment in deployments:
        _check_dead(archive, deployment, is_gone, "--forget --foreign ")
    for deployment in deployments:
        for sentence in _still_claimed(archive, deployment):
            say(printable(sentence))
        Journal(archive, deployment.run).end()
        hosts = one_line(", ".join(deployment.hosts))
        say(f"forgotten, and left as it is: what {_who(deployment)} left on {hosts}")


def _still_claimed(archive: Path, deployment: Deployment) -> Iterator[str]:
    """Drop the run's claims; yields where that failed."""
    try:
        campaign = deployment.campaign(archive)
    except UsageError as error:
        yield f"{error}; so its hosts still claim devices, until your next campaign there begins"
        return
    scripts = {
        host: destroy.forget(campaign.cluster.tmp_dir, [note["uuid"] for note in of_host.values()])
        for host, of_host in deployment.devices.items()
        if of_host
    }
    for host, answer in _remote(campaign).attempt(scripts, 60, "drop the claims").items():
        if answer.status != 0:
            why = answer.stderr.strip().rpartition("\n")[2] or answer.ending
            yield (f"{host}: {campaign.cluster.tmp_dir}/{destroy.NOTES} still claims devices for "
                   f"that run ({why}), until your next campaign there begins; remove that file "
                   "if you use them before")  # fmt: skip


@contextlib.contextmanager
def _held(
    campaign: Campaign, archive: Path, deployment: Deployment, is_gone: bool
) -> Iterator[None]:
    """Nobody else works on the hosts meanwhile; what the dead run held there is taken over."""
    remote, site = _remote(campaign), whole_site(campaign)
    # One of another machine that holds its hosts is believed to live, unless the user knows better.
    dead = deployment.own_run if is_gone or locks.is_dead(deployment.by) else ""
    try:
        with hosts_held(remote, site, own_id(), locks.this_run(archive), dead):
            yield
    except HostError as error:
        raise _again(error) from error
    except UsageError as error:
        if dead or not deployment.is_own:
            raise
        command = f"cbt-crypto cleanup --foreign {shlex.quote(str(archive))}"
        raise UsageError(f"{error}\nif its machine is gone: {command}") from error


def _check_dead(archive: Path, deployment: Deployment, insist: bool, options: str = "") -> None:
    dead = locks.is_dead(deployment.by)
    if dead is False:
        raise UsageError(
            f"{archive}: is of {locks.describe(deployment.by)}, which is running; wait for it or "
            "end it"
        )
    if dead is None and not insist:
        raise UsageError(
            f"{archive}: {locks.describe(deployment.by)} may be running elsewhere, and did not "
            "tear everything down; if it is dead: "
            f"cbt-crypto cleanup {options}{shlex.quote(str(archive))}"
        )


def _clear_one(deployment: Deployment, campaign: Campaign, say: Say) -> None:
    try:
        _restore(deployment, campaign, say)
        cluster, remote = cluster_of(campaign), _remote(campaign)
        _clear_target(cluster, remote, campaign, deployment)
        free_hosts(remote, whole_site(campaign), deployment.run)
    except HostError as error:
        raise _again(error) from error


def _clear_target(cluster: Any, remote: Any, campaign: Campaign, deployment: Deployment) -> None:
    host, archive = (str(deployment.by.get(key)) for key in ("host", "archive"))
    made_for = rbd_images.made_for(host, archive) if deployment.is_own else ""
    target = target_of(campaign.cluster)
    target.clear(cluster, remote, campaign, deployment.own_run, made_for)


def _restore(deployment: Deployment, campaign: Campaign, say: Say) -> None:
    """Put back the notes that are gone with their directory, as after a power cut."""
    remote = _remote(campaign)
    scripts = devices.restoring(campaign.cluster.tmp_dir, deployment.devices)
    remote.run(scripts, "look for notes on devices", 60)
    for sentence in journal.put_back(remote, whole_site(campaign), campaign, deployment.ways_back):
        say(sentence)


def _gone(campaign: Campaign) -> Iterator[str]:
    """Hosts without the run's directory; it still exists if its file system is unmounted."""
    tmp_dir = campaign.cluster.tmp_dir
    look = f"$SUDO sh -c '[ -e \"$0\" ] || echo gone' {shlex.quote(tmp_dir)}"
    looks = dict.fromkeys(whole_site(campaign).hosts, look)
    for host, answer in _remote(campaign).attempt(looks, 60, "look for tmp_dir").items():
        if answer.stdout.strip() == "gone":
            yield printable(f"{host}: {tmp_dir} is gone; if its file system is not mounted, mount "
                            "it and remove that directory")  # fmt: skip


def _remains(campaign: Campaign) -> Iterator[str]:
    """What is still on the devices, as nothing shows that the run had put it there."""
    tmp_dir = campaign.cluster.tmp_dir
    for host, left in places_of(campaign).items():
        for path in left["devices"]:
            look = destroy.look(tmp_dir, path, "the file")
            answer = _remote(campaign).attempt({host: look}, 60, "look at what remains")[host]
            first = answer.stdout.strip().partition("\n")[0] or "cannot be read"
            if first != "ok":
                first = first.replace("signature ", "still carries ", 1)
                yield printable(f"{host}: {path} {first}; nothing shows that it was that run's, "
                                "so it was left as it is")  # fmt: skip


def _unproved(deployment: Deployment, campaign: Campaign) -> Iterator[str]:
    """What may be in a cluster that stays: of which run it is, an archive can only claim."""
    if not deployment.is_own and not target_of(campaign.cluster).can_be_rebuilt:
        yield printable(
            f"{campaign.cluster.head}: images that the run made on the cluster stay, if it left "
            "any; their names begin with cbt-, and rbd rm removes them; so do pools of CBT's "
            f"benchmarks, which ceph osd dump shows with {rbd_images.MADE_FOR}: ceph osd pool rm"
        )


def cluster_of(campaign: Campaign) -> Any:
    """The cluster of a file, by the embedded engine, as take-down needs it."""
    section = dict(campaign.document["cluster"])
    section.setdefault("tmp_dir", campaign.cluster.tmp_dir)
    section.update(engine_keys(campaign.cluster))
    engine: Engine = embedded()
    engine.settings.cluster.clear()
    engine.settings.cluster.update(section)
    maker = target_of(campaign.cluster).maker(engine)
    return overlaid(maker, section, [*campaign.stacks.values()], whole=campaign.cluster)[0]


def _remote(campaign: Campaign) -> Remote:
    return embedded().remote(campaign.cluster)


def _again(error: HostError) -> RunError:
    return RunError(f"{error}; fix that, then run the same command again to tear down the rest")


def _who(deployment: Deployment) -> str:
    return "a run that ended early, " + locks.describe(deployment.by) + ","
