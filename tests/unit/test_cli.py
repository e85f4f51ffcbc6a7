"""The command line: its help, what it imports for it, and the archive that `run` chooses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cbt_crypto.cli import SECTIONS, cbt_crypto
from cbt_crypto.errors import UsageError
from cbt_crypto.main import cbt
from cbt_crypto.plan.file import read_campaign
from cbt_crypto.plan.order import cells_of
from cbt_crypto.plan.steps import plan
from cbt_crypto.plan_command import with_conf
from cbt_crypto.run.resume import check_archive, default_archive, write_plan

pytestmark = pytest.mark.unit

LAZY = {name: lazy for commands in SECTIONS.values() for name, lazy in commands.items()}
#: What takes long to import, and no help needs.
HEAVY = {"lxml", "numpy", "pydantic", "rich", "scipy", "yaml"}


def everywhere(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """The words before `--help` of each command."""
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from everywhere(below, *names, name)


@pytest.mark.parametrize("words", [*everywhere(cbt_crypto)], ids=" ".join)
def test_every_help_has_an_example_and_cuts_nothing(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cbt_crypto, [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert "Example" in result.output and "cbt-crypto" in result.output.split("Example")[1]
    described = result.output.split("Example")[0]
    several = ("[ARGS]...", "[COMMAND]...", "[NAME=]DIR ...", "ARCHIVE ...", "node1, ...")
    assert "..." not in re.sub("|".join(map(re.escape, several)), "", described)
    assert all(len(line) <= 80 for line in described.splitlines())


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    result = CliRunner().invoke(cbt_crypto, ["reprot", "archive"])
    assert result.exit_code == 2 and "Did you mean 'report'?" in result.output


def test_cbt_py_has_an_example_too() -> None:
    assert "cbt.py --plan campaign.yaml" in CliRunner().invoke(cbt, ["--help"]).output


@pytest.mark.parametrize("name", LAZY)
def test_the_group_says_of_a_command_what_it_says_itself(name: str) -> None:
    said = LAZY[name].command().help or ""
    first_paragraph = " ".join(said.partition("\n\n")[0].split())
    assert first_paragraph.startswith(LAZY[name].line)


def test_each_command_is_one_line_of_the_group_s_help() -> None:
    output = CliRunner().invoke(cbt_crypto, ["--help"], terminal_width=80).output
    lines = [line.strip() for line in output.splitlines()]
    for name, lazy in LAZY.items():
        assert any(line.startswith(f"{name} ") and line.endswith(lazy.line) for line in lines)


@pytest.mark.parametrize(
    "words", [["cbt_crypto.main", "cbt"], ["cbt_crypto.cli", "cbt_crypto"]], ids=lambda w: w[1]
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    module, name = words
    program = (
        f"import sys\nfrom {module} import {name} as command\n"
        "try:\n    command(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"Usage: " in done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.decode().split()}
    assert loaded & HEAVY == set()


def test_what_makes_reports_imports_no_engine() -> None:
    """It took a tenth of a report that had nothing new to read."""
    program = "import sys, cbt_crypto.report_commands, cbt_crypto.report\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert [name for name in loaded if name.startswith("cbt_crypto.engine")] == []


def archive_of(path: Path, complete: bool = False, again: bool = False) -> Path:
    return default_archive(read_campaign(path), path, lambda _: complete, again)


def begun(path: Path, archive: str) -> Path:
    """An archive that a run of this file has begun."""
    made = Path("results") / archive
    (made / "results").mkdir(parents=True)
    write_plan(made, plan(read_campaign(path)))
    return made


@pytest.fixture
def campaign_file(write_campaign: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(write_campaign())


def test_a_new_archive_is_called_after_the_file_and_the_day(campaign_file: Path) -> None:
    name = f"{campaign_file.stem}-"
    first = archive_of(campaign_file)
    assert first.parent == Path("results") and first.name.startswith(name)
    assert len(first.name) == len(name) + len("2026-11-24")
    first.mkdir(parents=True)
    (first / ".lock").touch()
    assert archive_of(campaign_file) == first, "a run that did not begin leaves its name"
    (first / "somebody's").touch()
    assert archive_of(campaign_file) == Path(f"{first}-2")


def test_the_newest_unfinished_archive_of_the_file_is_continued(campaign_file: Path) -> None:
    older, newer = (begun(campaign_file, f"{campaign_file.stem}-{day}") for day in ("b", "a"))
    for number, archive in enumerate((older, newer)):
        os.utime(archive / "results" / "plan.json", (number, number))
    assert archive_of(campaign_file) == newer
    assert archive_of(campaign_file, complete=True) not in (older, newer)
    assert archive_of(campaign_file, complete=True, again=True) == newer


@pytest.mark.parametrize("suffix", [".bak", "-copy", "-2.old", "~", " (copy)"])
def test_a_backup_copy_is_not_continued(campaign_file: Path, suffix: str) -> None:
    """It is the newest by its dates: cells were added to it, and the original stayed as it was."""
    campaign_file = campaign_file.rename("nightly-2026-11-20-luks.yaml")
    names = (f"{campaign_file.stem}-2026-11-24{end}" for end in ("", "-2", suffix))
    first, second, copy = (begun(campaign_file, name) for name in names)
    for number, archive in enumerate((first, second, copy)):
        os.utime(archive / "results" / "plan.json", (number, number))
    assert archive_of(campaign_file) == second
    assert archive_of(campaign_file, complete=True, again=True) == second


def test_an_archive_of_a_longer_name_is_of_another_file(campaign_file: Path) -> None:
    """`run nightly.yaml` went on in that of nightly-luks.yaml, and set aside what it lacks."""
    plain = campaign_file.rename("nightly.yaml")
    begun(plain, "nightly-luks-2026-11-26")
    assert archive_of(plain).name == f"nightly-{time.strftime('%Y-%m-%d')}"


@pytest.mark.parametrize("name", ["commands.log", "cbt_config.yaml", "progress.json", "other"])
def test_a_run_that_wrote_no_plan_is_begun_again(campaign_file: Path, name: str) -> None:
    """Its archive was refused from then on, as holding no campaign."""
    campaign, archive = read_campaign(campaign_file), Path("archive")
    (archive / "results").mkdir(mode=0o700, parents=True)
    (archive / ".lock").touch()
    (archive / "results" / name).touch()
    if name != "other":
        check_archive(archive, campaign)
        return
    with pytest.raises(UsageError, match="is not empty and holds no campaign"):
        check_archive(archive, campaign)


@pytest.mark.parametrize("definition", [[], {}, None])
def test_a_definition_that_is_no_text_is_no_cell_s(campaign_file: Path, definition: Any) -> None:
    """A list was a traceback."""
    other = begun(campaign_file, f"{campaign_file.stem}-other")
    plan_file = other / "results" / "plan.json"
    document = {**json.loads(plan_file.read_text()), "cells": [{"definition": definition}]}
    plan_file.write_text(json.dumps(document))
    assert archive_of(campaign_file) == other, "it is of the same file"


def test_an_archive_of_another_file_is_left_alone(campaign_file: Path) -> None:
    other = begun(campaign_file, f"{campaign_file.stem}-other")
    plan_file = other / "results" / "plan.json"
    document = json.loads(plan_file.read_text())
    cells = [{**cell, "definition": "another"} for cell in document["cells"]]
    plan_file.write_text(json.dumps({**document, "document": {}, "cells": cells}))
    assert archive_of(campaign_file) != other


def test_a_file_that_was_changed_continues_where_cells_are_missing(campaign_file: Path) -> None:
    mine = begun(campaign_file, f"{campaign_file.stem}-mine")
    plan_file = mine / "results" / "plan.json"
    document = json.loads(plan_file.read_text())
    plan_file.write_text(json.dumps({**document, "document": {"title": "as it was"}}))
    assert archive_of(campaign_file) == mine
    for cell in document["cells"]:
        (mine / cell["path"]).mkdir(parents=True)
        (mine / cell["path"] / "cell.json").write_text('{"state": "finished"}')
    assert archive_of(campaign_file) != mine, "all that it planned is measured"


def test_an_archive_of_another_ceph_conf_is_done_or_refused(campaign_file: Path) -> None:
    """A run with another -c went on in the one that was done, and replaced it."""
    mine = begun(campaign_file, f"{campaign_file.stem}-mine")
    conf = Path("other.conf")
    conf.write_text("[osd]\nosd_max_backfills = 9\n")
    words = ["plan", "--cbt", "embedded", str(campaign_file)]

    def chosen(*options: str) -> str:
        output = CliRunner().invoke(cbt_crypto, [*words, *options]).output
        return output.partition("\n")[0].removeprefix("archive: ")

    campaign = with_conf(read_campaign(campaign_file), conf)
    with pytest.raises(UsageError, match="was written for another ceph"):
        check_archive(mine, campaign)
    assert chosen() == chosen("-c", str(conf)) == str(mine), "which is then refused"
    for cell in json.loads((mine / "results" / "plan.json").read_text())["cells"]:
        (mine / cell["path"]).mkdir(parents=True)
        (mine / cell["path"] / "cell.json").write_text('{"state": "finished"}')
    assert chosen("-c", str(conf)) != str(mine)


def test_plan_says_which_archive_and_prints_json(campaign_file: Path) -> None:
    result = CliRunner().invoke(cbt_crypto, ["plan", "--cbt", "embedded", str(campaign_file)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"archive: results/{campaign_file.stem}-")
    words = ["plan", "--json", "--cbt", "embedded", str(campaign_file)]
    document = json.loads(CliRunner().invoke(cbt_crypto, words).output)
    assert document["to_measure"] == len(cells_of(read_campaign(campaign_file)))
    assert {step["step"] for step in document["steps"]} >= {"measure"}
    assert not Path("results").exists()


def test_check_prints_json(campaign_file: Path) -> None:
    words = ["check", "--no-hosts", "--json", str(campaign_file)]
    result = CliRunner().invoke(cbt_crypto, words)
    assert json.loads(result.output) == {
        "format": 1, "file": str(campaign_file), "ok": True, "findings": [],
    }  # fmt: skip
