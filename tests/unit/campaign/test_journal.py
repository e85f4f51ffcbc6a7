"""What the journal keeps of a run, and what is read from a damaged or a misleading one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.cli import cbt_crypto
from cbt_crypto.engine.contract import embedded
from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import Campaign, load
from cbt_crypto.run.journal import Journal, left_over, path_of, places_of

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


def begun(archive: Path, campaign: Campaign, run: str = "r1") -> Journal:
    journal = Journal(archive, run)
    journal.begin(campaign, {"pid": 1}, embedded())
    return journal


def test_a_run_that_ended_leaves_nothing(tmp_path: Path, campaign_of: Make) -> None:
    journal = begun(tmp_path, campaign_of())
    journal.deploy("Default", "rebuild")
    assert [one.run for one in left_over(tmp_path)] == ["r1"]
    journal.end()
    assert left_over(tmp_path) == []


def test_what_is_where(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={
            "osd_devices": ["/dev/a", "/dev/b"],
            "osds_per_node": 2,
            "configurations": {"A": {}, "B": {"luks": {}}},
        }
    )
    places = places_of(campaign)
    assert list(places) == ["head", "o0", "o1", "c0", "c1"]
    assert places["o1"] == {
        "tmp_dir": "/tmp/cbt-crypto",
        "mark": "CBT_CRYPTO_MARK=/tmp/cbt-crypto@o1",
        "devices": ["/dev/a", "/dev/b"],
        "overlays": ["luks"],
    }
    assert places["head"]["devices"] == []


def test_the_campaign_of_then_comes_back(tmp_path: Path, campaign_of: Make) -> None:
    campaign = campaign_of(cluster={"tmp_dir": "/srv/other"})
    begun(tmp_path, campaign)
    (deployment,) = left_over(tmp_path)
    assert deployment.campaign(tmp_path).cluster == campaign.cluster
    assert "head: processes with CBT_CRYPTO_MARK=/srv/other@head, /srv/other" in (
        deployment.describe()
    )


def test_a_line_that_was_cut_short_is_no_line(tmp_path: Path, campaign_of: Make) -> None:
    journal = begun(tmp_path, campaign_of())
    with path_of(tmp_path).open("a") as file:
        file.write('{"run": "r2", "event": "beg')
    journal.end()
    assert left_over(tmp_path) == []
    begun(tmp_path, campaign_of(), "r3")
    assert [one.run for one in left_over(tmp_path)] == ["r3"]


VALUES = st.none() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=2), max_size=2)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "run": VALUES, "event": st.sampled_from(["begin", "end", "deploy"]) | VALUES,
                "by": VALUES, "hosts": VALUES | st.dictionaries(st.text(max_size=2), VALUES),
                "time": VALUES, "document": VALUES,
            },
        ),
        max_size=4,
    )
)  # fmt: skip
def test_no_journal_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    archive = tmp_path_factory.mktemp("archive")
    path_of(archive).parent.mkdir()
    path_of(archive).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for deployment in left_over(archive):
        deployment.describe()
        with pytest.raises(UsageError):
            deployment.campaign(archive)


def test_a_pipe_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    os.mkfifo(path_of(tmp_path))
    with pytest.raises(UsageError, match="is not a regular file"):
        left_over(tmp_path)


def test_cleanup_says_that_nothing_is_left(tmp_path: Path) -> None:
    done = CliRunner().invoke(cbt_crypto, ["cleanup", str(tmp_path)])
    assert (done.exit_code, done.output) == (
        0, f"{tmp_path}: nothing is left on any host that its journal knows of\n"
    )  # fmt: skip
    none = CliRunner().invoke(cbt_crypto, ["cleanup", str(tmp_path / "none")])
    assert none.exit_code == 2


def test_cleanup_takes_down_what_a_dead_run_left(
    tmp_path: Path, host: Any, no_overlays: None
) -> None:
    """On this machine: a directory that is marked as ours goes, another stays."""
    campaign = load(host.write())
    begun(host.archive, campaign)
    (host.tmp_dir / "ceph").mkdir(parents=True)
    (host.tmp_dir / ".cbt-crypto").touch()
    done = CliRunner().invoke(cbt_crypto, ["cleanup", str(host.archive)])
    assert done.exit_code == 0, done.output
    assert "taking down what a run that ended early" in done.output
    assert not host.tmp_dir.exists()
    assert left_over(host.archive) == []
