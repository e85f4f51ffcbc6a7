"""The script is run for real, against a socket that speaks the daemons' protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from cbt_crypto.hosts import admin_socket
from cbt_crypto.hosts.admin_socket import Question, script
from cbt_crypto.hosts.site import HostOutputs, Osd, Site

pytestmark = pytest.mark.unit


Shell = Callable[[str], str]


def parse(outputs: HostOutputs) -> admin_socket.Answers:
    osd = Osd(0, "node0", "/dev/sdb", "/t", "/t/asok", "/t/pid")
    return admin_socket.parse(Site("/t", "/t/ceph.conf", "node0", (), (osd,)), outputs)


def test_one_question_one_answer(daemon: Any, sh: Shell) -> None:
    daemon.payloads = [b'{"version": "16.2.15"}']
    text = script([Question("osd.0 it's", daemon.path, {"prefix": "version"})])
    answers = parse({"node0": sh(text)})
    assert answers.values == {"osd.0 it's": {"version": "16.2.15"}}
    assert answers.errors == {}
    assert daemon.requests == [{"prefix": "version"}]


def test_of_a_large_answer_only_the_leaves_asked_for_are_kept(daemon: Any, sh: Shell) -> None:
    filler = {str(n): "x" * 100 for n in range(5000)}
    answer = {"Worker-0": {"recv_bytes": 7, "recv_messages": 1}, "osd": {"op": 3}, **filler}
    daemon.payloads = [json.dumps(answer).encode()]
    text = script(
        [Question("osd.0 a", daemon.path, {"prefix": "perf dump"}, ("Worker-*/*_bytes",))]
    )
    assert parse({"node0": sh(text)}).values == {"osd.0 a": {"Worker-0/recv_bytes": 7}}


def test_a_steady_question_is_asked_until_nothing_moved(daemon: Any, sh: Shell) -> None:
    daemon.payloads = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}', b'{"n": 3}', b'{"n": 4}']
    text = script([Question("osd.0 n", daemon.path, {"prefix": "perf dump"}, steady=True)])
    assert parse({"node0": sh(text)}).values == {"osd.0 n": [{"n": 3}, {"n": 3}]}


def test_a_steady_question_gives_up_with_the_last_two(daemon: Any, sh: Shell) -> None:
    daemon.payloads = [b'{"n": %d}' % n for n in range(100)]
    text = script([Question("osd.0 n", daemon.path, {"prefix": "perf dump"}, steady=True)])
    assert parse({"node0": sh(text)}).values == {"osd.0 n": [{"n": 49}, {"n": 50}]}


@pytest.mark.parametrize("payload", [b"", b"unknown command", b'{"cut": '])
def test_no_json_is_an_error_of_that_question_alone(daemon: Any, sh: Shell, payload: bytes) -> None:
    daemon.payloads = [payload, b"{}"]
    ask = [Question(key, daemon.path, {"prefix": "what"}) for key in ("osd.0 bad", "osd.0 good")]
    answers = parse({"node0": sh(script(ask))})
    assert answers.values == {"osd.0 good": {}}
    fault = answers.fault("osd.0 bad", "node0")
    assert fault is not None and fault.startswith(daemon.path)


def test_a_daemon_that_is_gone_is_named(sh: Shell, tmp_path: Path) -> None:
    path = f"{tmp_path}/gone.asok"
    answers = parse({"node0": sh(script([Question("osd.0 a", path, {"prefix": "version"})]))})
    assert answers.fault("osd.0 a", "node0") == f"{path}: [Errno 2] No such file or directory"


def test_a_host_that_printed_something_else_is_named() -> None:
    answers = parse({"node0": "sudo: a password is required", "node1": '{"answers": 3}'})
    for host in ("node0", "node1"):
        fault = answers.fault("osd.0 bytes", host)
        assert fault is not None and fault.startswith(f"{host} printed no answers")
    assert answers.fault("osd.7 bytes", "node2") == "node2 was not asked for osd.7 bytes"
