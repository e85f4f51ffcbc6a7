"""The hook's page: its example is the package in example/plugin, and runs as shown."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]


def run(checkout: Path, plan: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "./cbt.py", "-a", str(plan.parent / "archive"), str(plan)]
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


def read_ini(text: str) -> dict[str, str]:
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(text)
    return dict(parser["options.entry_points"])


def test_the_page_s_example_runs_as_shown(with_plugins: Path, tmp_path: Path) -> None:
    page = (with_plugins / "docs" / "Plugins.md").read_text()
    example = with_plugins / "example" / "plugin"
    (ini,) = re.findall(r"```ini\n(.*?)```", page, re.S)
    (plan_text,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    (sentence,) = re.findall(r"```\n(ValueError: .*?)\n```", page, re.S)
    assert read_ini(ini) == read_ini((example / "setup.cfg").read_text())
    plan_of_page = yaml.safe_load(plan_text)
    assert plan_of_page == yaml.safe_load((example / "filefio.yaml").read_text())

    source, packages = tmp_path / "source", tmp_path / "packages"
    shutil.copytree(example, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, "--no-build-isolation", str(source)], check=True)
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_text.replace("no_ceph", "no_cpeh"))
    done = run(with_plugins, plan, packages)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(sentence)

    if shutil.which("fio") is None:
        pytest.skip("needs fio")
    shorter = {"directory": str(tmp_path), "time": 1, "size": "1M"}
    plan_of_page["benchmarks"]["filefio"].update(shorter)
    plan_of_page["cluster"]["tmp_dir"] = str(tmp_path / "tmp")
    plan.write_text(yaml.safe_dump(plan_of_page))
    done = run(with_plugins, plan, packages)
    assert done.returncode == 0, done.stdout + done.stderr
    found = sorted((tmp_path / "archive" / "results" / "00000000").glob("id-*/json_output.0.*"))
    assert len(found) == 2 and all('"jobs"' in path.read_text() for path in found)
