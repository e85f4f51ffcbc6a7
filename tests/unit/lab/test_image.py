from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts import directory_on_host
from cbt_crypto.lab import image
from cbt_crypto.lab.shape import Release, Steps

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("E: Failed to fetch http://a.example/pool/x.deb  Could not resolve 'a'", "index cannot"),
        ("W: Temporary failure resolving 'a.example'\nE: apt-get update failed", "index cannot"),
        ("dpkg: error: failed to write: No space left on device\nE: failed", "disk is full"),
        ("W: GPG error: trixie InRelease: NO_PUBKEY 6ED0E7B82643E131", "debian-archive-keyring"),
        ("newuidmap: uid range [1-65536) -> [100000-) not allowed", "subordinate ids"),
    ],
)
def test_known_failures_are_said_in_a_sentence(output: str, meaning: str) -> None:
    sentence = image.explain(output, Path("/c/image.log"))
    assert meaning in sentence and "/c/image.log" in sentence and "\n" not in sentence


def test_other_failures_show_the_builder_s_last_error() -> None:
    output = "I: installing\nE: first\nE: setting up ceph-mgr failed\ncleaning"
    assert "setting up ceph-mgr failed" in image.explain(output, Path("log"))
    assert "Killed" in image.explain("I: installing\nKilled\n", Path("log"))
    assert "no output" in image.explain("", Path("log"))


def test_stages_are_told_while_a_builder_runs_and_its_output_is_kept(tmp_path: Path) -> None:
    log, stages = tmp_path / "log", []
    image.run(["sh", "-c", "echo I: downloading...; echo detail >&2"], log, stages.append)
    assert stages == ["downloading"]
    assert log.read_text() == "I: downloading...\ndetail\n"


def test_a_failing_builder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="building the lab image failed: out of luck"):
        image.run(["sh", "-c", "echo E: out of luck; exit 1"], tmp_path / "log")


def test_without_a_builder_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="install the package mmdebstrap"):
        image.provide("trixie", Steps(Console(file=StringIO())))


def test_what_ages_in_an_image_is_for_its_user_alone() -> None:
    """In a cache that all may enter, every user could run setuid programs of years ago."""
    made = image.images_dir() / image.key("trixie")
    made.mkdir(parents=True)
    (made / "vmlinuz").touch()
    image.images_dir().chmod(0o755)
    image.provide("trixie", Steps(Console(file=StringIO())))
    assert stat.S_IMODE(image.images_dir().stat().st_mode) == 0o700


def test_the_key_changes_with_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.key("trixie")
    copy = tmp_path / "recipe"
    copy.mkdir()
    for path in image.RECIPE.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(image, "RECIPE", copy)
    assert image.key("trixie") == before
    with (copy / "packages.txt").open("a") as packages:
        packages.write("htop\n")
    assert image.key("trixie") != before


def test_each_release_has_an_image_of_its_own() -> None:
    assert len({image.key(release.suite) for release in Release}) == len(Release)


#: Printed by `apt-config dump` of apt 2.6, less what is of no interest here.
_DUMP = """\
APT::Architecture "amd64";
Acquire "";
Acquire::Check-Valid-Until "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128/";
Acquire::https::Proxy::deb.example "DIRECT";
Acquire::cdrom::mount "/media/cdrom/";
Acquire::Languages:: "en";
"""


def test_builders_reach_the_archive_as_this_machine_s_apt_does(
    programs: Callable[[str, str], Path],
) -> None:
    programs("apt-config", f"cat <<'END'\n{_DUMP}END")
    command = image.mmdebstrap("forky", Path("/t"), None)
    options = [word.partition("=")[2] for word in command if word.startswith("--aptopt=Acquire")]
    assert options == [
        'Acquire::Retries "3"',
        'Acquire::Check-Valid-Until "false"',
        'Acquire::http::Proxy "http://proxy.example:3128/"',
        'Acquire::https::Proxy::deb.example "DIRECT"',
    ]
    (told,) = [w for w in image.debootstrap("forky", Path("/t"), None) if "APT_OPTIONS" in w]
    assert told.splitlines()[1] == 'Acquire::http::Proxy "http://proxy.example:3128/";'


def test_comments_are_no_packages() -> None:
    packages = image.entries("packages.txt")
    assert {"ceph-osd", "fio", "cryptsetup-bin"} <= set(packages)
    assert all(package == package.strip("# ") and " " not in package for package in packages)
    assert len(packages) == len(set(packages))


def test_the_recipe_is_on_the_builder_s_command_line() -> None:
    command = image.mmdebstrap("trixie", Path("/t"), None)
    (include,) = [word for word in command if word.startswith("--include=")]
    assert include.partition("=")[2].split(",") == image.entries("packages.txt")
    for path in image.entries("excludes.txt"):
        assert f"--dpkgopt=path-exclude={path}" in command
    assert command[-2:] == ["trixie", "/t"]


@pytest.mark.parametrize("builder", [image.mmdebstrap, image.debootstrap])
def test_a_mirror_comes_last_and_only_when_it_is_named(
    builder: Callable[..., list[str]],
) -> None:
    named = builder("trixie", Path("/t"), "http://mirror.example/debian")
    assert named == [*builder("trixie", Path("/t"), None), "http://mirror.example/debian"]


def test_a_builder_without_root_gets_ids_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert {"--user", "--map-root-user", "--map-auto"} <= set(image.isolated(["true"]))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "--user" not in image.isolated(["true"])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts take root")
def test_a_build_keeps_no_campaign_s_drive_mounted(tmp_path: Path) -> None:
    """A campaign beside it could not tear down: its drive was busy until the image was there."""
    ours, other = tmp_path / "tmp_dir" / "drive", tmp_path / "other" / "drive"
    for place in (ours, other):
        place.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    try:
        (tmp_path / "tmp_dir" / directory_on_host.MARKER).touch()
        done = subprocess.run(
            image.isolated(["cat", "/proc/mounts"]), check=True, stdout=subprocess.PIPE, text=True
        )
        assert str(ours) not in done.stdout and str(other) in done.stdout
    finally:
        subprocess.run(["umount", str(ours), str(other)], check=True)


def test_the_system_is_found_by_a_partition_table(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.touch()
    image.add_partition(disk)
    command = ["/usr/sbin/blkid", "--probe", "--output", "export", str(disk)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {"PTUUID=cb7c1ab0", "PTTYPE=dos"} <= set(shown.splitlines())
    assert image.SYSTEM_ID == "cb7c1ab0-01"
