"""After a failed deployment of real Ceph, the log says which command failed, and no key."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BENCHMARKS = {
    "rbd_single_client": {
        "vol_size": 64, "time": 4, "iodepth": 8, "op_size": 4096, "mode": "randread",
    },
}  # fmt: skip
#: Base64 of a key of Ceph's own form: type 1 of 16 bytes, or type 2 of 32.
KEY = re.compile(r"A[Qg][A-Za-z0-9+/]{30,}={1,2}")


def test_a_failed_deployment_is_in_the_log_and_no_key_is(machine: Any) -> None:
    config = machine.write({"Plain": {}}, BENCHMARKS)
    document = yaml.safe_load(config.read_text())
    # BlueStore takes powers of two only.
    conf = machine.directory / "ceph.conf"
    conf.write_text("[osd]\nbluestore min alloc size = 5000\n")
    document["cluster"]["conf_file"] = str(conf)
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    done = machine.run(config, "-v", "--no-report")
    assert done.returncode == 1, done.stdout + done.stderr
    log = (machine.archive / "results" / "commands.log").read_text()
    failed = [line.split("\t") for line in log.splitlines() if "\texit 0\t" not in line]
    # status, host, and what it was for: whoever reads this knows where to look
    assert failed, log
    assert {(fields[2].split()[0], fields[3]) for fields in failed} == {("exit", "localhost")}
    assert any("ceph-osd" in fields[5] for fields in failed)
    assert not KEY.search(log), KEY.search(log)
    # -v printed the same lines while it ran
    for fields in failed:
        assert fields[0] in done.stdout
