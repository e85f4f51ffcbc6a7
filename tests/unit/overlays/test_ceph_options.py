"""What daemons answer has the forms of Ceph 16.2 and 18.2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cbt_crypto.cluster_overlays import ceph_options_on_host
from cbt_crypto.cluster_overlays.base import Overlay, Seen, Transition, Verdict
from cbt_crypto.cluster_overlays.ceph_options import CephOptions
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import RunError, UsageError
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file import read_campaign

pytestmark = pytest.mark.unit

OSD = Osd(0, "a", "/dev/x", "/t/osd.0", "/t/run/osd.0.asok", "/t/run/osd.0.pid")
SITE = Site("/t", "/t/c.conf", "a", ("a",), (OSD,), ("a",), ("a",), active_clients=("a",))

RUNTIME = {"type": "str", "min": "", "max": "", "enum_values": [], "flags": ["runtime"]}
STARTUP = {**RUNTIME, "type": "uint", "flags": ["startup"]}
PROFILE = {"osd": {"osd_mclock_profile": "high_recovery_ops"}}


def configured(**configurations: Mapping[str, Any]) -> dict[str, CephOptions]:
    """The overlays of a campaign with these options, by configuration."""
    named: dict[str, tuple[Overlay, ...]] = {
        name: (CephOptions(**sections),) if sections else ()
        for name, sections in configurations.items()
    }
    return {name: of[0] for name, of in CephOptions.beside(named).items()
            if isinstance(of[0], CephOptions)}  # fmt: skip


def told(overlays: Mapping[str, CephOptions], **known: Any) -> dict[str, CephOptions]:
    outputs = {"a": json.dumps(known)}
    return {name: overlay.decided(outputs) for name, overlay in overlays.items()}


def daemon(value: str, *levels: str) -> dict[str, Any]:
    return {"osd_mclock_profile": {"value": value, "set": list(levels)}}


def judged(overlay: CephOptions, before: Any, after: Any) -> Verdict:
    looks = [{"a": json.dumps({"osd.0": look, "mon.x": daemon("balanced")})}
             for look in (before, after)]  # fmt: skip
    return overlay.judge(SITE, *looks)


@pytest.fixture
def profiles() -> dict[str, CephOptions]:
    values = {"high_recovery_ops": "high_recovery_ops"}
    overlays = configured(plain={}, recovery=PROFILE)
    return told(overlays, osd_mclock_profile={**RUNTIME, "values": values})


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"osds": {"osd_op_queue": "wpq"}}, "osds: is no section"),
        ({"osd": {}}, "is empty"),
        ({"osd": {"osd_op_queue": "wpq\nfsid = 1"}}, "pattern"),
        ({"global": {"ms client mode": "crc"}}, "name the overlay secure_messenger"),
        ({"global": {"ms_mon_service_mode": "crc"}}, "name the overlay secure_messenger"),
        ({"osd": {"osd_data": "/etc"}}, "each deployment decides it"),
        ({"osd": {"bluestore_block_path": "/dev/sda"}}, "osd_devices"),
    ],
)
def test_what_is_refused_in_the_file(sections: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        CephOptions(**sections)


def test_modes_of_compression_are_none_of_encryption() -> None:
    options = {"ms_osd_compress_mode": "force"}
    assert CephOptions(osd=options).ceph_conf() == {"osd": options}


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    (need, *_) = configured(plain={}, few={"osd": {"osd_op_num_shard": 4}})["few"].requirements(
        SITE
    )
    answer = {"osd_op_num_shard": {"nearest": ["osd_op_num_shards", "osd_op_num_shards_hdd"]}}
    assert need.judge(json.dumps(answer)) == (
        "ceph_options: this release has no option osd_op_num_shard; did you mean osd_op_num_shards "
        "or osd_op_num_shards_hdd?"
    )
    assert "install ceph-common" in str(need.judge("sh: rados: not found"))


@pytest.mark.parametrize(
    ("about", "value", "shown", "sentence"),
    [
        (STARTUP, "many", None, "osd_x = many: Ceph takes a value of type uint"),
        ({**RUNTIME, "enum_values": ["wpq", "mclock"]}, "x", None, "Ceph takes wpq, mclock"),
        ({**RUNTIME, "type": "size", "min": "939524096"}, "1M", "1048576", "at least 939524096"),
        ({**RUNTIME, "type": "float", "max": "1"}, "1.5", "1.500000", "at most 1"),
        ({**RUNTIME, "flags": ["create"]}, "1", "1", "only when a daemon is made"),
    ],
)  # fmt: skip
def test_a_value_that_the_release_does_not_take(
    about: Any, value: str, shown: Any, sentence: str
) -> None:
    overlays = configured(plain={}, other={"osd": {"osd_x": value}})
    with pytest.raises(RunError, match=sentence):
        told(overlays, osd_x={**about, "values": {value: shown}})


def test_hosts_with_releases_that_differ() -> None:
    overlay = configured(plain={}, recovery=PROFILE)["recovery"]
    answers = [{"osd_mclock_profile": {**RUNTIME, "flags": flags, "values": {}}}
               for flags in ([], ["runtime"])]  # fmt: skip
    with pytest.raises(RunError, match="differ in these options"):
        overlay.decided({host: json.dumps(answer) for host, answer in zip("ab", answers)})


def test_the_transition_is_the_options_own(profiles: Mapping[str, CephOptions]) -> None:
    untold = configured(plain={}, recovery=PROFILE)
    assert untold["plain"].transition_to(untold["recovery"]) is Transition.RESTART
    assert profiles["plain"].transition_to(profiles["recovery"]) is Transition.LIVE
    assert (
        Stack([profiles["recovery"]]).transition_to(Stack([profiles["plain"]])) is Transition.LIVE
    )
    startup = told(configured(plain={}, few={"osd": {"osd_op_num_shards": 4}}),
                   osd_op_num_shards={**STARTUP, "values": {"4": "4"}})  # fmt: skip
    assert startup["plain"].transition_to(startup["few"]) is Transition.RESTART
    written = configured(plain={}, packed={"osd": {"bluestore_compression_mode": "force"}})
    assert written["plain"].transition_to(written["packed"]) is Transition.REBUILD
    assert written["plain"].transition_to(written["plain"]) is Transition.NONE


def test_what_messengers_agree_on_takes_new_connections() -> None:
    """zlib between OSDs cost nothing: it was set live, and no OSD had connected since."""
    packed = {"osd": {"ms_osd_compress_mode": "force"}}
    overlays = told(configured(plain={}, packed=packed),
                    ms_osd_compress_mode={**RUNTIME, "values": {"force": "force"}})  # fmt: skip
    assert overlays["plain"].transition_to(overlays["packed"]) is Transition.RESTART
    assert overlays["packed"].ceph_conf() == packed


def test_clients_read_an_option_from_ceph_conf_though_daemons_could_take_it_live() -> None:
    overlays = told(
        configured(plain={}, cached={"client": {"rbd_cache": True}}),
        rbd_cache={**RUNTIME, "type": "bool", "values": {"true": "true"}},
    )
    assert overlays["plain"].transition_to(overlays["cached"]) is Transition.RESTART
    assert overlays["cached"].ceph_conf() == {"client": {"rbd_cache": "true"}}


@pytest.mark.parametrize("nobody", ["osd.99", "osd.00", "mon.z"])
def test_an_option_of_a_daemon_that_is_not_there_is_not_proved(nobody: str) -> None:
    """A typo changed nothing, every cell was proved, and the option made no difference."""
    overlay = configured(plain={}, other={nobody: {"osd_mclock_profile": "balanced"}})["other"]
    looks = [{"a": json.dumps({"osd.0": daemon("balanced"), "mon.x": daemon("balanced")})}] * 2
    verdict = overlay.judge(SITE, *looks)
    assert not verdict.proved
    assert verdict.reason == f"{nobody} did not say which options it runs with: nothing came"


@pytest.mark.parametrize("gone", ["mgr.x", "mon.a", "osd.0"])
def test_an_option_of_a_daemon_that_vanished_is_not_proved(gone: str) -> None:
    """A manager that ended within the cell took its socket with it, and nobody missed it."""
    overlay = configured(plain={}, other={"mgr": {"osd_mclock_profile": "balanced"}})["other"]
    before = {who: daemon("balanced") for who in ("osd.0", "mon.a", "mgr.x")}
    after = {who: said for who, said in before.items() if who != gone}
    assert overlay.judge(SITE, *[{"a": json.dumps(before)}] * 2).proved
    verdict = overlay.judge(SITE, *({"a": json.dumps(look)} for look in (before, after)))
    assert not verdict.proved
    assert verdict.reason == f"{gone} did not say which options it runs with: nothing came"


def test_a_runtime_option_is_set_and_unset_through_sockets(
    profiles: Mapping[str, CephOptions],
) -> None:
    assert profiles["recovery"].ceph_conf() == {"osd": {}}
    assert '"osd_mclock_profile": "high_recovery_ops"' in profiles["recovery"].after_osds(SITE)["a"]
    assert '"names": ["osd_mclock_profile"]' in profiles["plain"].after_osds(SITE)["a"]
    assert '"sections": {}' in profiles["plain"].after_osds(SITE)["a"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"success": "x = '4' "}, None),
        ({"error": "no such option"}, "osd.0: config set x: no such option"),
        # as of osd_mclock_profile on 16.2, whose queue is another by default
        ({"success": "x = '4' (not observed, change may require restart)"}, None),
    ],
)
def test_what_a_daemon_says_when_an_option_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, sentence: Any
) -> None:
    (tmp_path / "osd.0.asok").touch()
    monkeypatch.setattr(ceph_options_on_host, "ask", lambda *_: answer)
    asked = {"folder": str(tmp_path), "osds": ["osd.0"], "names": ["x"],
             "sections": {"osd": {"x": "4"}}}  # fmt: skip
    if sentence is None:
        ceph_options_on_host.apply(asked)
        return
    with pytest.raises(SystemExit, match=sentence):
        ceph_options_on_host.apply(asked)


def test_proved_and_disproved(profiles: Mapping[str, CephOptions]) -> None:
    recovery, plain = profiles["recovery"], profiles["plain"]
    in_force, other = daemon("high_recovery_ops", "override"), daemon("balanced", "override")
    verdict = judged(recovery, in_force, in_force)
    assert (verdict.proved, verdict.reason) == (
        True, "1 run with osd_mclock_profile = high_recovery_ops",
    )  # fmt: skip
    assert judged(recovery, in_force, other).reason == (
        "osd.0 runs with osd_mclock_profile = balanced and not high_recovery_ops"
    )
    assert judged(plain, daemon("balanced"), daemon("balanced")).proved
    assert judged(plain, daemon("balanced"), in_force).reason == (
        "osd.0: osd_mclock_profile was set there (override)"
    )
    assert judged(plain, daemon("balanced"), daemon("custom")).reason == (
        "osd.0: osd_mclock_profile was balanced before the cell, and custom after it"
    )
    gone = recovery.judge(SITE, {"a": "{}"}, {"a": "{}"})
    assert "osd.0 did not say which options" in gone.reason
    assert not judged(recovery, in_force, {"error": "x: refused"}).proved


def test_what_was_changed_and_changed_back_while_the_cell_ran(
    profiles: Mapping[str, CephOptions],
) -> None:
    looks = [Seen({"osd.0": {"osd_mclock_profile": value}}, 0.0)
             for value in ("high_recovery_ops", "custom", "high_recovery_ops")]  # fmt: skip
    wrong = profiles["recovery"].judge_seen(SITE, {"a": looks})
    assert wrong == (
        "osd.0 ran with osd_mclock_profile = custom meanwhile, and not high_recovery_ops"
    )
    assert profiles["plain"].judge_seen(SITE, {"a": looks}) is not None
    assert profiles["plain"].judge_seen(SITE, {"a": looks[:1]}) is None


def test_clients_are_asked_as_they_connect() -> None:
    cached = told(
        configured(plain={}, cached={"client": {"rbd_cache": True}}),
        rbd_cache={**RUNTIME, "type": "bool", "values": {"true": "true"}},
    )
    daemons = json.dumps({"osd.0": {"rbd_cache": {"value": "false", "set": []}}})

    def verdict(name: str, *values: str) -> Verdict:
        looks = [{"a": f"{daemons}\n@ceph-options\n{value}\n"} for value in values]
        return cached[name].judge(SITE, *looks)

    assert verdict("cached", "true", "true").reason == "1 run with rbd_cache = true"
    assert "client on a runs with rbd_cache = false" in verdict("cached", "true", "false").reason
    assert "could not connect" in verdict("cached", "", "").reason
    assert verdict("plain", "false", "false").proved
    assert not verdict("plain", "false", "true").proved
    assert "rbd_cache" in cached["plain"].probe(SITE)["a"]


def test_the_nearest_section_of_a_daemon_counts() -> None:
    sections = {"osd": {"x y": 2}, "osd.0": {"x-y": 3}}
    overlay = configured(plain={}, other=sections)["other"]
    assert overlay.ceph_conf()["osd.0"] == {"x_y": "3"}
    look = {"x_y": {"value": "2", "set": []}}
    assert "osd.0 runs with x_y = 2 and not 3" in judged(overlay, look, look).reason


def test_a_nearer_section_of_the_campaigns_own_ceph_conf_is_refused() -> None:
    overlay = CephOptions(**{"global": {"osd_memory_target": "4G"}})
    conf = {"osd": {"osd memory target": "2G"}}
    assert "remove the line" in str(overlay.check_ceph_conf(conf))
    assert overlay.check_ceph_conf({"global": {"osd_memory_target": "2G"}}) is None


def test_without_such_options_nothing_is_asked() -> None:
    assert CephOptions.absent() is None
    assert CephOptions.beside({"plain": ()}) == {"plain": ()}


FILE = """
cluster:
  head: a
  clients: [a]
  osds: [a]
  mons: {{a: {{a: 127.0.0.1}}}}
  mgrs: {{a: {{x: ~}}}}
  osd_file_size: 4G
  osds_per_node: 3
  tmp_dir: /tmp/cbt
  configurations: {{plain: {{}}, other: {{ceph_options: {options}}}}}
benchmarks:
  {scenario}: {{vol_size: 64, workloads: {{op_size: 4096, mode: randread}}}}
"""


def test_a_file_with_options(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(FILE.format(options="{osd: {osd_op_queue: wpq}}", scenario="rbd_single_client"))
    plain, other = (read_campaign(path).configurations[name][0] for name in ("plain", "other"))
    assert (plain.is_present, other.is_present) == (False, True)
    path.write_text(FILE.format(options="{client: {rbd_cache: true}}", scenario="rbd_krbd"))
    with pytest.raises(UsageError, match="leave client out"):
        read_campaign(path)
    path.write_text(FILE.format(options="{osdd: {a: 1}}", scenario="rbd_single_client"))
    with pytest.raises(UsageError, match="osdd: is no section"):
        read_campaign(path)
