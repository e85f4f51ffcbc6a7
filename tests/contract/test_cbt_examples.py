"""CBT's own example files: each is planned and checked, or refused by one sentence.

`WRITE_DOCS=1` writes what was found into docs/upstream.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.engine.choice import PROJECT
from cbt_crypto.engine.upstream.checkout import Checkout
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import of_cbt, read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan

pytestmark = pytest.mark.contract

_PAGE = PROJECT / "docs" / "upstream.md"
_BASE = "9b4a548"


def examples(checkout: Checkout) -> list[Path]:
    """Return CBT's example files, without those that the patches offered to it add."""
    files = (checkout.path / "example").rglob("*.y*ml")
    return sorted(file for file in files if file.name != "messenger-modes.yaml")


def outcome(file: Path) -> str:
    """Return what becomes of a file, without its place on this machine."""
    try:
        campaign = read_campaign(file)
        plan(campaign)
    except UsageError as error:
        (sentence,) = str(error).splitlines()
        return re.sub(r"^.*?:\d+: ", "", sentence)
    cells = len(cells_of(campaign))
    notes = "; ".join(note.partition(":")[0] for note in campaign.notes)
    return f"runs, {cells} cells" + (f"; {notes}" if notes else "")


def rows(checkout: Checkout) -> Iterator[str]:
    yield "| example | outcome |"
    yield "| --- | --- |"
    for file in examples(checkout):
        name = file.relative_to(checkout.path / "example").as_posix()
        yield f"| {name} | {outcome(file)} |"


def key_rows() -> Iterator[str]:
    yield "| keys | CBT as the engine | embedded engine |"
    yield "| --- | --- | --- |"
    cluster = {f"cluster.{key}": "read by CBT's modules" for key in of_cbt.PASSED}
    cluster |= {f"cluster.{key}": f"no effect: {why}" for key, why in of_cbt.UNUSED.items()}
    cluster |= of_cbt.SECTIONS
    refused = {f"cluster.{key}": instead for key, instead in of_cbt.REFUSED.items()}
    refused |= {f"benchmarks.{name}": instead for name, instead in of_cbt.BENCHMARKS.items()}
    for texts, prefix, embedded in ((cluster, "", "no effect"), (refused, "refused: ", "refused")):
        for text in dict.fromkeys(texts.values()):
            keys = ", ".join(key for key, each in texts.items() if each == text)
            yield f"| {keys} | {prefix}{text} | {embedded} |"


def is_in_page(name: str, lines: Iterator[str]) -> None:
    """Compare a table with the one between the page's marks of that name."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = _PAGE.read_text().partition(begin)
    found, _, after = rest.partition(end)
    table = "".join(f"{line}\n" for line in lines)
    if os.environ.get("WRITE_DOCS"):
        _PAGE.write_text(f"{before}{begin}{table}{end}{after}")
        return
    assert found == table, "WRITE_DOCS=1 writes it"


def test_each_example_runs_or_is_refused_by_one_sentence(checkout: Checkout) -> None:
    if not (checkout.commit or "").startswith(_BASE):
        pytest.skip(f"the table is that of {_BASE}")
    assert len(examples(checkout)) == 12
    is_in_page("examples", rows(checkout))


def test_keys() -> None:
    is_in_page("keys", key_rows())


def test_check_says_the_same(checkout: Checkout) -> None:
    for file in examples(checkout):
        done = CliRunner().invoke(cbt_crypto, ["check", "--no-hosts", str(file)])
        said = outcome(file)
        assert done.exit_code == (0 if said.startswith("runs") else 2), done.output
        if done.exit_code:
            assert len(done.output.splitlines()) == 1 and said in done.output
