"""What part A's page shows, pasted into files and run: a package, a test plan, and a typo in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]

#: What the page's names stand for, by what it says of each.
_PACKAGE = """\
from cluster.cluster import Cluster


class MyCluster(Cluster):
    use_existing = True


class MyBenchmark:
    def __init__(self, archive_dir, cluster, config):
        self.op_size = config["op_size"]

    def exists(self):
        return True

    def initialize_endpoints(self):
        pass

    def run(self):
        print("ran", self.op_size)


def write_tables(archive_dir):
    print("tables of", archive_dir)
"""


def run(checkout: Path, plan: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "./cbt.py", "-a", str(plan.parent / "archive"), str(plan)]
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def test_the_page_s_examples_run_as_they_stand(with_plugins: Path, tmp_path: Path) -> None:
    page = (with_plugins / "docs" / "Plugins.md").read_text()
    (ini,) = re.findall(r"```ini\n(.*?)```", page, re.S)
    (plan_text,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (sentence,) = re.findall(r"```\n(ValueError: .*?)\n```", page, re.S)

    source, packages = tmp_path / "source", tmp_path / "packages"
    source.mkdir()
    (source / "setup.cfg").write_text(
        f"[metadata]\nname = my-package\n[options]\npy_modules = my_package\n{ini}"
    )
    (source / "setup.py").write_text("import setuptools\nsetuptools.setup()\n")
    (source / "my_package.py").write_text(_PACKAGE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, str(source)], check=True)

    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_text)
    done = run(with_plugins, plan, packages)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.startswith(("ran", "tables"))]
    assert ran == ["ran 4096", "ran 65536", f"tables of {tmp_path}/archive"]

    plan.write_text(plan_text.replace("my_cluster", "my_clutser"))
    done = run(with_plugins, plan, packages)
    assert done.returncode == 1
    assert sentence.split("installed are")[0] in done.stderr.splitlines()[-1]
