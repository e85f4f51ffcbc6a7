from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from cbt_crypto.cli import cbt_crypto

pytestmark = pytest.mark.unit


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cbt_crypto, ["lab", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["up", "status", "ssh", "run", "down"])
def test_every_command_explains_itself(command: str) -> None:
    status, output = invoke(command, "--help")
    assert status == 0
    assert "--name" in output and len(output.splitlines()) > 6


def test_a_lab_that_is_not_there_has_a_status_and_can_be_taken_down() -> None:
    assert invoke("status") == (1, "lab default is down\n")
    assert invoke("down") == (0, "lab default was down already\n")


@pytest.mark.parametrize("command", [("ssh",), ("run", "c.yaml", "-a", "archive")])
def test_what_needs_a_lab_says_how_to_get_one(command: tuple[str, ...]) -> None:
    assert invoke(*command, "--name", "nice") == (
        2,
        'there is no lab "nice"; start one with: cbt-crypto lab up --name nice\n',
    )


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--disk-size", "8X", "'8X' is not a size"),
        ("--nodes", "0", "0 is not in the range"),
        ("--kind", "container", "'container' is not one of"),
        ("--name", "../../etc", "letters, digits"),
        ("--memory", "100T", "needs"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(option: str, value: str, sentence: str) -> None:
    status, output = invoke("up", option, value)
    assert status == 2
    assert sentence in output


def test_an_image_that_a_lab_uses_is_kept(cache: Path) -> None:
    (cache / "labs" / "other").mkdir(parents=True)
    (cache / "images" / "0123456789ab").mkdir(parents=True)
    assert invoke("down", "--image") == (
        2,
        "lab default was down already\n"
        "lab other uses the image; stop it first with lab down, then repeat this\n",
    )
    assert (cache / "images" / "0123456789ab").exists()
    (cache / "images" / "0123456789ab" / "system.ext4").write_bytes(bytes(8192))
    stays = (
        r"The nodes' image \(.+B\) stays for the next lab; remove it: cbt-crypto lab down --image"
    )
    assert re.search(stays, invoke("down")[1])
    assert invoke("down", "--image", "--name", "other")[0] == 0
    assert not (cache / "images").exists()
    assert list((cache / "labs").iterdir()) == []


def test_another_release_is_for_nodes_that_share_files() -> None:
    status, output = invoke("up", "--kind", "vm", "--also", "tentacle", "--name", "nice")
    assert status == 2
    assert "--also is for nodes of --kind namespace" in output
