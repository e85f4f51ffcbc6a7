"""Installed as people do on Debian 13 and its next release: pipx, uv, a deb and an rpm.

Each root is made by mmdebstrap; pipx, apt, dpkg and rpm are its own. Debian 12 has no pydantic 2,
and so only pipx and uv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cbt_crypto.lab.image import host_apt_options, host_mirror

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

PROJECT = Path(__file__).resolve().parents[2]
PACK = PROJECT / "tests/unit/data/packs/archive-format-1.zip"
_BUILD = (
    "debhelper,dh-python,pybuild-plugin-pyproject,python3-all,python3-setuptools,build-essential"
)
_BASE = f"python3,python3-venv,python3-pip,pipx,ca-certificates,{_BUILD}"
#: What anybody does first; the report is of a pack that the tests keep.
_TRIAL = """
cd / && cbt-crypto --version
cbt-crypto check --no-hosts /root/src/configs/reef_encryption.yaml
cbt.py --plan /root/src/configs/quickstart.yaml
cbt-crypto completion bash | bash -n
rm -rf /root/report && cbt-crypto report /root/pack.zip -o /root/report
test -s /root/report/report.html && test -s /root/report/report.md
"""


@dataclass(frozen=True)
class Root:
    path: Path

    def run(self, script: str) -> str:
        """What a script prints, as root in there; the test fails with its end when it does."""
        inner = f"export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HOME=/root\n{script}"
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec",
             'mount -t proc proc "$0/proc"; exec chroot "$0" sh -ec "$1"', str(self.path), inner],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout


@pytest.fixture(scope="module", params=["trixie", "forky"])
def root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Root]:
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    path = tmp_path_factory.mktemp(request.param) / "root"
    options = [f"--aptopt={option}" for option in host_apt_options()]
    command = ["mmdebstrap", "--variant=minbase", "--format=directory", f"--include={_BASE}"]
    mirror = host_mirror()
    subprocess.run(
        [*command, "--skip=cleanup/apt", *options, request.param, str(path),
         *([mirror] if mirror else [])],
        check=True,
    )  # fmt: skip
    # How this machine reaches the registries.
    for file in (
        "etc/resolv.conf",
        "etc/hosts",
        "etc/pip.conf",
        "etc/ssl/certs/ca-certificates.crt",
    ):
        if Path("/", file).exists():
            shutil.copy(Path("/", file), path / file)
    source = path / "root/src"
    source.mkdir()
    tracked = subprocess.run(
        ["git", "-C", str(PROJECT), "archive", "HEAD"], stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=tracked.stdout, check=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(path / "root")]
    subprocess.run([*wheel, str(source)], check=True)
    shutil.copy(PACK, path / "root/pack.zip")
    yield Root(path)
    shutil.rmtree(path)


def test_pipx_installs_the_wheel(root: Root) -> None:
    root.run(f"pipx install /root/*.whl; export PATH=/root/.local/bin:$PATH\n{_TRIAL}")


def test_uv_installs_the_wheel_as_a_tool(root: Root) -> None:
    root.run(
        "python3 -m venv /root/uv; /root/uv/bin/pip install -q uv\n"
        "export UV_TOOL_DIR=/root/tools UV_TOOL_BIN_DIR=/root/tools/bin\n"
        "/root/uv/bin/uv tool install --native-tls --python /usr/bin/python3 /root/*.whl\n"
        f"export PATH=/root/tools/bin:$PATH\n{_TRIAL}"
    )


def test_a_release_is_built_and_each_package_installed_and_removed(root: Root) -> None:
    root.run("apt-get install -y -q make git && cd /root/src && make release")
    built = root.run("ls /root/src/dist")
    assert [Path(name).suffix for name in sorted(built.split())] == [".deb", ".rpm", ".gz", ".whl"]
    system = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
    root.run("apt-get install -y -q --no-install-recommends /root/src/dist/cbt-crypto_*_all.deb")
    root.run(system + _TRIAL)
    # The libraries that the deb brought stay; an rpm puts modules where Fedora's Python looks.
    root.run("dpkg --purge cbt-crypto; ! command -v cbt-crypto")
    root.run("rpm -i --nodeps /root/src/dist/cbt-crypto-*.noarch.rpm")
    modules = root.run("dirname $(rpm -ql cbt-crypto | grep '/cbt_crypto/cli.py$')").strip()
    root.run(f"{system}export PYTHONPATH={Path(modules).parent}\n{_TRIAL}")
    root.run("rpm -e cbt-crypto; ! command -v cbt-crypto")
