"""What a killed run left at work on this machine is ended, and nobody else's."""

from __future__ import annotations

import os
import subprocess

import pytest

from cbt_crypto.hosts import marked_processes

pytestmark = pytest.mark.unit


def test_only_that_run_s() -> None:
    with marked_processes.named("a1"):
        one = subprocess.Popen(["sleep", "60"])
    with marked_processes.named("a11"):
        other = subprocess.Popen(["sleep", "60"])
    marked_processes.end_run("a1")
    assert one.wait(5) == -9
    assert other.poll() is None
    other.kill()
    other.wait()
    assert "CBT_CRYPTO_RUN" not in os.environ
