"""The table of `cbt-crypto check`: hosts by what they must offer, and how to fix what is red."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.requirement import PACKAGES
from cbt_crypto.run.preflight.survey import HostFinding
from cbt_crypto.units import grouped


def show(findings: Sequence[HostFinding], console: Console) -> None:
    """Print the table of hosts, then a line for each error, then for each warning."""
    boundless = Console(file=console.file, width=10_000)
    wide = console if console.is_terminal else boundless
    if (table := _across(findings)).row_count:
        fits = boundless.measure(table).maximum <= wide.width
        wide.print(table if fits else _down(findings))
    for style, name, sentences in (
        ("red", "error", [(f.host, f.error) for f in findings if f.error]),
        ("yellow", "warning", [(f.host, f.warning) for f in findings if f.warning]),
    ):
        for host, sentence in dict.fromkeys(sentences):
            line = Text.assemble((f"{name}: ", style), f"{host}: {sentence}")
            console.print(line, soft_wrap=True)


def _across(findings: Sequence[HostFinding]) -> Table:
    """A row a host, a column for each thing that is looked at."""
    columns = list(filter(None, dict.fromkeys(finding.column for finding in findings)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("host", *columns):
        table.add_column(Text(column), no_wrap=True)
    for host, of_host in _by_host(findings).items():
        table.add_row(Text(host), *(_field(of_host, column) for column in columns))
    return table


def _down(findings: Sequence[HostFinding]) -> Table:
    """A row a host for narrow terminals: what was found of it, wrapped, beside its name."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for host, of_host in _by_host(findings).items():
        fields = []
        for column in dict.fromkeys(finding.column for finding in of_host):
            field = _field(of_host, column)
            unbroken = field.plain.replace(" ", "\u00a0")
            fields.append(Text.assemble((f"{column}\u00a0", "dim"), (unbroken, field.style)))
        table.add_row(Text(host, style="bold"), Text("  ").join(fields))
    return table


def _by_host(findings: Iterable[HostFinding]) -> dict[str, list[HostFinding]]:
    """By host, without what is of no column: that is of the file, and of no host."""
    return grouped((finding.host, finding) for finding in findings if finding.column)


def _field(findings: Sequence[HostFinding], column: str) -> Text:
    here = [finding for finding in findings if finding.column == column]
    shown = [finding.shown for finding in here if finding.shown not in ("", "ok")]
    text = " ".join(dict.fromkeys(shown)) or ("ok" if here else "")
    if any(finding.error for finding in here):
        return Text(text if "no" in shown else f"{text} no", style="bold red")
    if any(finding.warning for finding in here):
        return Text(f"{text} !", style="yellow")
    return Text(text, style="green" if text == "ok" else "")


#: Beginnings of other sentences -> the same.
_OTHERS: Sequence[tuple[str, tuple[str, str]]] = (
    ("LVM's commands are missing", ("lvm2",) * 2),
    ("fio has no rbd engine", ("fio", "fio-engine-rbd")),
)
_MISSING = re.compile(r"(.+?) is missing; install ")
_TUNED = "TuneD is not running"
_MANAGER = "command -v apt-get || command -v dnf || :"
_TIMEOUT_S = 60
_INSTALL = {
    "apt-get": "sudo apt-get update && sudo apt-get install -y --no-install-recommends",
    "dnf": "sudo dnf install -y",
}


def managers(remote: Remote, findings: Iterable[HostFinding]) -> dict[str, str]:
    """Host -> apt-get or dnf, of those with something to fix that have one."""
    hosts = _by_host(finding for finding in findings if finding.error or finding.warning)
    answers = remote.attempt(dict.fromkeys(hosts, _MANAGER), _TIMEOUT_S)
    programs = {host: answer.stdout.strip().rpartition("/")[2] for host, answer in answers.items()}
    return {host: name for host, name in programs.items() if name in _INSTALL}


def script(
    findings: Sequence[HostFinding], manager: Mapping[str, str], user: Optional[str]
) -> Iterator[str]:
    """Lines of a shell script: for each host its commands, and in comments what has none."""
    yield "# Made by `cbt-crypto check --fix-commands`. Read it before you run any of it."
    to_fix = [finding for finding in findings if finding.error or finding.warning]
    for host, of_host in _by_host(to_fix).items():
        yield ""
        yield f"# {host}"
        commands, by_hand = _mended(of_host, manager.get(host), user)
        login = shlex.quote(f"{user}@{host}" if user else host)
        yield from (f"ssh -t {login} {shlex.quote(line)}" for line in commands)
        yield from (f"# by hand: {line}" for line in by_hand)


def _mended(
    findings: Sequence[HostFinding], manager: Optional[str], user: Optional[str]
) -> tuple[list[str], list[str]]:
    packages: dict[str, None] = {}
    commands: dict[str, None] = {}
    by_hand: dict[str, None] = {}
    for finding in findings:
        for sentence in filter(None, (finding.error, finding.warning)):
            needed, then = _packages(finding, sentence, manager), _commands(finding, sentence, user)
            packages.update(dict.fromkeys(needed))
            commands.update(dict.fromkeys(then))
            if not needed and not then:
                by_hand[sentence] = None
    # The repository that has others comes by itself, and first.
    first = [name for name in packages if name == "epel-release"]
    rest = [name for name in packages if name not in first]
    install = [
        f"{_INSTALL[manager]} {' '.join(part)}" for part in (first, rest) if part and manager
    ]
    return [*install, *commands], list(by_hand)


def _packages(finding: HostFinding, sentence: str, manager: Optional[str]) -> list[str]:
    package_names: Optional[tuple[str, str]] = None
    missing = _MISSING.match(sentence)
    if missing:
        package_names = PACKAGES.get(missing[1])
    for begin, packages in _OTHERS:
        package_names = packages if sentence.startswith(begin) else package_names
    if finding.column == "clock" and "start chrony" in sentence:
        package_names = ("chrony", "chrony")
    if finding.column == "governor":
        package_names = ("linux-cpupower", "kernel-tools")
    if package_names is None or manager is None:
        return []
    return package_names[manager == "dnf"].split()


def _commands(finding: HostFinding, sentence: str, user: Optional[str]) -> list[str]:
    """What is to be done once all is installed."""
    if finding.column == "clock" and "start chrony" in sentence:
        return ["sudo systemctl enable --now chrony || sudo systemctl enable --now chronyd"]
    if finding.column == "governor":
        return ["sudo cpupower frequency-set -g performance"]
    if sentence.startswith((_TUNED, "tuned-adm is missing")):
        return ["sudo systemctl enable --now tuned"]
    if finding.column == "sudo" and sentence.startswith("needs root"):
        rule = f"{user or '$(id -un)'} ALL=(ALL) NOPASSWD: ALL"
        sudoers = "/etc/sudoers.d/cbt-crypto"
        return [f'echo "{rule}" | sudo tee {sudoers} && sudo chmod 440 {sudoers} && sudo visudo -c']
    return []
