"""What `perf script` printed, folded on the host by class of thread and second."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbt_crypto.hosts.stacks_on_host import bounded, fold, folded, frame_of, stack_of

pytestmark = pytest.mark.unit

#: `perf script` 6.1 beside Ceph 16.2.15 with secure messengers, and one sample of a minute before.
SCRIPT = Path(__file__).parents[1] / "data" / "perf" / "script.txt"
OSD, WORKER = "30507", "7180"


def test_what_perf_printed_is_folded() -> None:
    kinds = {OSD: "ceph-osd", WORKER: "kernel"}
    stacks = folded(SCRIPT.read_text().splitlines(), kinds, 55225.0)
    worker = "ceph-osd;tp_osd_tp;ShardedThreadPool::WorkThreadSharded::entry;"
    assert [stack[: len(worker)] for stack in stacks if "tp_osd_tp" in stack] == [worker] * 2
    (encrypted,) = [stack for stack in stacks if "msgr-worker" in stack]
    assert encrypted == (
        "ceph-osd;msgr-worker;[libstdc++.so.6.0.30];[ceph-osd];EventCenter::process_events;"
        "ProtocolV2::write_event;ProtocolV2::write_message;ProtocolV2::append_frame;"
        "ceph::msgr::v2::FrameAssembler::assemble_frame;"
        "ceph::msgr::v2::FrameAssembler::asm_secure_rev1;"
        "ceph::crypto::onwire::AES128GCM_OnWireTxHandler::authenticated_encrypt_update;"
        "EVP_EncryptUpdate;[libcrypto.so.3]"
    )
    assert stacks[encrypted] == {0: 2}
    (kernel,) = [stack for stack in stacks if stack.startswith("kernel")]
    assert kernel.startswith("kernel;kworker;kthread_[k];worker_thread_[k];process_one_work_[k];")
    assert kernel.endswith(";vp_notify_[k];iowrite16_[k]")
    # The client's thread of the same name, and a shell, are of nobody's interest.
    assert sum(sum(counts.values()) for counts in stacks.values()) == 5


def test_samples_are_counted_by_second() -> None:
    text = SCRIPT.read_text().splitlines()
    counted = folded(text, {OSD: "ceph-osd"}, 55224.6)
    seconds = [second for counts in counted.values() for second in counts]
    assert sorted(seconds) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("symbol", "dso", "name"),
    [
        ("[unknown]", "/usr/lib/libcrypto.so.3", "[libcrypto.so.3]"),
        ("[unknown]", "[unknown]", ""),
        ("a;b", "/x", "a:b"),
        ("std::map<int, std::list<long> >::find", "/x", "std::map::find"),
        ("operator<<", "/x", "operator<<"),
        ("cfree@GLIBC_2.2.5", "/x", "cfree"),
        ("crypt_convert", "[dm_crypt]", "crypt_convert_[k]"),
        ("__vdso_gettimeofday", "[vdso]", "__vdso_gettimeofday"),
        ("x" * 500, "/x", "x" * 100),
    ],
)
def test_names_of_frames(symbol: str, dso: str, name: str) -> None:
    assert frame_of(symbol, dso) == name


def test_a_worker_is_of_what_it_does_and_not_of_its_name() -> None:
    frames = ["crypt_convert_[k]", "kcryptd_crypt_[k]", "kthread_[k]", "ret_from_fork_[k]"]
    stack = "kernel;kcryptd;kthread_[k];kcryptd_crypt_[k];crypt_convert_[k]"
    assert stack_of("kernel", "kworker/u8:1-ev", frames) == stack
    assert stack_of("kernel", "kworker/u8:1-kcryptd/254:0", ["a_[k]"]) == "kernel;kworker;a_[k]"
    assert stack_of("kernel", "dmcrypt_write/2", ["a_[k]"]) == "kernel;dmcrypt_write;a_[k]"
    assert stack_of("kernel", "ksoftirqd/0", ["a_[k]"]) == ""
    assert stack_of("ceph-osd", "log", ["a"]) == "ceph-osd;ceph-rest;a"
    assert stack_of("", "tp_osd_tp", ["a"]) == ""


def test_the_rest_of_many_stacks_is_one_of_each_class() -> None:
    stacks = {"o;a;x": {0: 9}, "o;a;y": {0: 1, 1: 1}, "o;a;z": {1: 1}, "o;b;x": {2: 1}}
    assert bounded(stacks, 1) == {"o;a;x": {0: 9}, "o;a;other": {0: 1, 1: 2}, "o;b;other": {2: 1}}


def test_a_record_that_cannot_be_read_in_time_is_said(tmp_path: Path) -> None:
    """A program with endless symbols kept perf busy, and nobody knew why there were no stacks."""
    (perf := tmp_path / "perf").write_text("#!/bin/sh\nexec sleep 60\n")
    perf.chmod(0o755)
    with pytest.raises(OSError, match="took more than 1 s"):
        fold({"perf_cmd": str(perf)}, str(tmp_path / "perf.data"), {"1": "kernel"}, 0.0, 1)
