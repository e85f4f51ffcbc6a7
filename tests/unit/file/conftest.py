"""What `load` says of a file that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.plan.file import read_campaign


@pytest.fixture
def refusal_of(tmp_path: Path) -> Callable[[str], str]:
    """The sentences about a file of this text, with the file's path cut to its name."""

    def refused(text: str) -> str:
        path = tmp_path / "campaign.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError) as caught:
            read_campaign(path)
        return str(caught.value).replace(str(tmp_path) + "/", "")

    return refused


@pytest.fixture
def problems_of(
    write_campaign: Callable[..., Path], tmp_path: Path
) -> Callable[..., dict[str, str]]:
    """Key -> sentence, for the base campaign with sections changed; lines are not looked at."""

    def problems(**sections: Any) -> dict[str, str]:
        with pytest.raises(UsageError) as caught:
            read_campaign(write_campaign(**sections))
        found = {}
        for line in str(caught.value).splitlines():
            _, _, rest = line.removeprefix(f"{tmp_path}/campaign.yaml").partition(": ")
            key, _, sentence = rest.partition(": ")
            found[key] = sentence
        return found

    return problems
