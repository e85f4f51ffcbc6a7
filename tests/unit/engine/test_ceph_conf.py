"""ceph.conf: people's own is read as Ceph reads it, and ours is written so that it can be read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.engine.embedded.daemons import base_options, setting_options, without
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import ceph_conf
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import site_of
from cbt_crypto.units import size_bytes

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]


@pytest.mark.skipif(shutil.which("ceph-conf") is None, reason="Ceph is not here")
@pytest.mark.parametrize(
    "name", ["ceph.conf", "lab.conf", "lab", "lab.1.conf", ".conf", "lab.txt", "lab.conf.old"]
)
def test_a_cluster_is_called_what_ceph_calls_it(name: str, tmp_path: Path) -> None:
    """By which Ceph's own tool then looks for keys."""
    conf = tmp_path / name
    conf.write_text("[global]\n")
    keyring = subprocess.run(
        ["ceph-conf", "-c", conf, "--name", "client.x", "--show-config-value", "keyring"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    cluster = ceph_conf.cluster_name(str(conf))
    assert keyring.startswith(f"/etc/ceph/{cluster}.client.x.keyring,")


def test_words_name_a_client_that_is_not_the_first() -> None:
    assert ceph_conf.client_words("/a b/lab.conf", "admin") == "-c '/a b/lab.conf'"
    assert ceph_conf.client_words("/lab.conf", "bench.1") == "-c /lab.conf --id bench.1"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], ceph_conf.Sections]:
    def conf(text: str) -> ceph_conf.Sections:
        path = tmp_path / "ceph.conf"
        path.write_text(text)
        return ceph_conf.read(path)

    return conf


def test_names_comments_indentation_and_addresses(read: Any) -> None:
    text = r"""
# a comment
; another
[global]
\tfsid = 1
      auth client required = none   ; behind two more blanks
   mon-host = [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]
osd_pool  default size=2 # no blanks
  mon initial members = a,\
     b
[osd.3]
  debug ms = 0/0
""".replace("\\t", "\t")
    assert read(text) == {
        "global": {
            "fsid": "1",
            "auth_client_required": "none",
            "mon_host": "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]",
            "osd_pool_default_size": "2",
            "mon_initial_members": "a,     b",
        },
        "osd.3": {"debug_ms": "0/0"},
    }


def test_a_later_line_replaces_an_earlier_one(read: Any) -> None:
    assert read("[osd]\na b = 1\n[global]\nc = 1\n[osd]\na_b = 2\n") == {
        "osd": {"a_b": "2"},
        "global": {"c": "1"},
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\n", 1), ("[osd]\nsecret\n", 2), ("[osd\n", 1), ("\nroot:$6$secret:1:0:::::\n", 2)],
)
def test_what_is_no_ceph_conf(read: Any, tmp_path: Path, text: str, line: int) -> None:
    """A line of the file, such as /etc/shadow's first, was repeated."""
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value) == (
        f"{tmp_path}/ceph.conf: not a ceph.conf: line {line} is neither [section] nor "
        "option = value"
    )


def test_a_conf_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "ceph.conf"
    path.write_bytes(b"[osd]\na = \xff\n")
    with pytest.raises(UsageError, match=r"ceph\.conf: not a ceph.conf: not a text in UTF-8$"):
        ceph_conf.read(path)


def test_a_conf_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x: no such ceph.conf; conf_file or -c is its path"):
        ceph_conf.read(tmp_path / "x")
    with pytest.raises(UsageError, match="cannot be read: Is a directory; fix conf_file or -c"):
        ceph_conf.read(tmp_path)


NAMES = st.lists(st.sampled_from(["osd", "ms", "mode", "1"]), min_size=1, max_size=4).map("_".join)
WORDS = ["", "1", "/a/$name.log", "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "a=b", "a:b", "[osd]"]
VALUES = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join).map(str.strip)
SECTIONS = st.dictionaries(
    st.sampled_from(["global", "mon", "osd", "osd.3", "client"]),
    st.dictionaries(NAMES, VALUES, max_size=4),
    max_size=4,
)


@given(SECTIONS)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, sections: ceph_conf.Sections
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.conf"
    path.write_text(ceph_conf.render(sections))
    assert ceph_conf.read(path) == sections


@given(SECTIONS, SECTIONS)
def test_the_later_layer_decides_and_nothing_is_lost(
    lower: ceph_conf.Sections, upper: ceph_conf.Sections
) -> None:
    merged = ceph_conf.merged(lower, upper)
    for section in {*lower, *upper}:
        expected = {**lower.get(section, {}), **upper.get(section, {})}
        assert merged[section] == expected


@given(SECTIONS)
def test_merging_with_nothing_changes_nothing(sections: ceph_conf.Sections) -> None:
    assert ceph_conf.merged(sections) == sections
    assert ceph_conf.merged({}, sections, {}) == sections


@pytest.mark.parametrize("name", ["ms client mode", "ms-client_mode", " ms  client  mode "])
def test_all_spellings_are_one_option(name: str) -> None:
    layers = ({"global": {"ms_client_mode": "crc"}}, {"global": {name: "secure"}})
    assert ceph_conf.merged(*layers) == {"global": {"ms_client_mode": "secure"}}


def test_people_s_conf_cannot_lead_a_daemon_out_of_tmp_dir(campaign_of: Make) -> None:
    cluster = campaign_of().cluster
    base = base_options(cluster, "0")
    own = {
        "global": {"fsid": "theirs", "keyring": "/etc/ceph/k", "osd_data": "/var", "debug_ms": "1"},
        "osd": {"log_file": "/var/log/x", "osd_op_num_shards": "8"},
        "osd.0": {"host": "elsewhere"},
        "mon.theirs": {"mon_addr": "1.2.3.4"},
        "mds": {"a": "1"},
    }
    assert without(own, base) == {"global": {"debug_ms": "1"}, "osd": {"osd_op_num_shards": "8"}}


@given(SECTIONS)
def test_nothing_that_is_decided_is_left(sections: ceph_conf.Sections) -> None:
    base = {"global": {"fsid": "1"}, "osd": {"osd_data": "/x"}}
    for options in without(sections, base).values():
        assert not options.keys() & {"fsid", "osd_data"}


def test_every_path_of_a_daemon_is_below_tmp_dir(campaign_of: Make) -> None:
    sections = base_options(campaign_of(cluster={"tmp_dir": "/srv/bench"}).cluster, "0")
    paths = [
        value
        for options in sections.values()
        for value in options.values()
        if value.startswith("/") and value != "/dev/null"
    ]
    assert len(paths) > 8
    assert all(path.startswith("/srv/bench/ceph/") for path in paths)


@pytest.mark.parametrize(
    ("address", "vector"),
    [
        ("10.0.0.1", "[v2:10.0.0.1:3300]"),
        ("10.0.0.1:6789", "[v2:10.0.0.1:3300]"),
        ("10.0.0.1:3301", "[v2:10.0.0.1:3301]"),
        ("localhost:13300", "[v2:127.0.0.1:13300]"),
    ],
)
def test_monitors_speak_msgr2_alone(campaign_of: Make, address: str, vector: str) -> None:
    cluster = campaign_of(cluster={"mons": {"head": {"a": address}}}).cluster
    options = base_options(cluster, "0")["global"]
    assert options["mon_host"] == vector
    assert options["ms_bind_msgr1"] == "false"


def test_several_monitors(campaign_of: Make) -> None:
    mons = {"head": {"a": "10.0.0.1", "b": "10.0.0.1:3301"}, "o0": {"c": "10.0.0.2"}}
    options = base_options(campaign_of(cluster={"mons": mons}).cluster, "0")["global"]
    assert options["mon_host"] == "[v2:10.0.0.1:3300] [v2:10.0.0.1:3301] [v2:10.0.0.2:3300]"
    assert options["mon_initial_members"] == "a,b,c"


def test_a_monitor_s_name_that_nobody_knows(campaign_of: Make) -> None:
    mons = {"head": {"a": "nobody.invalid"}}
    with pytest.raises(
        UsageError, match=r"nobody\.invalid: has no IPv4 address here; write the monitor"
    ):
        base_options(campaign_of(cluster={"mons": mons}).cluster, "0")


@pytest.mark.parametrize(
    ("osds", "per_node", "replication", "domain"),
    [(["a"], 3, 3, "0"), (["a", "b"], 8, 3, "0"), (["a", "b", "c"], 1, 3, "1"), (["a"], 1, 1, "1")],
)
def test_the_failure_domain_is_the_host_where_there_are_enough(
    campaign_of: Make, osds: list[str], per_node: int, replication: int, domain: str
) -> None:
    cluster = campaign_of(
        cluster={
            "osds": osds,
            "osds_per_node": per_node,
            "replication": ...,
            "pool_profiles": {"rbd": {"replication": replication}},
        }
    ).cluster
    assert setting_options(cluster)["global"]["osd_crush_chooseleaf_type"] == domain


@pytest.mark.parametrize(
    ("osds", "profiles", "limit"),
    [
        (2, {"rbd": {"pg_size": 64, "pgp_size": 64, "replication": 2}}, "250"),
        (30, {"rbd": {"pg_size": 16384, "pgp_size": 16384, "replication": 3}}, "3278"),
        (
            2,
            {
                "rbd": {"pg_size": 256, "pgp_size": 256, "replication": 2},
                "b": {"pg_size": 128, "pgp_size": 128, "replication": 3},
            },
            "896",
        ),
    ],
)
def test_room_for_the_placement_groups(
    campaign_of: Make, osds: int, profiles: Any, limit: str
) -> None:
    cluster = campaign_of(
        cluster={"osds": [f"o{n}" for n in range(osds)], "pool_profiles": profiles}
    ).cluster
    assert setting_options(cluster)["global"]["mon_max_pg_per_osd"] == limit


def test_room_for_the_placement_groups_of_every_group_side_by_side(campaign_of: Make) -> None:
    """Each has the file's pools, on its share of the OSDs: the third pool was refused by Ceph."""
    profile = {"pg_size": 16384, "pgp_size": 16384, "replication": 3}
    section = {
        "osds": [f"o{n}" for n in range(30)], "osds_per_device": 1, "layout": "side_by_side",
        "configurations": {"A": {}, "B": {"luks": {}}, "C": {"secure_messenger": {}}},
        "settings": {"osd_memory_target": "8G"}, "pool_profiles": {"rbd": profile},
    }  # fmt: skip
    campaign = campaign_of(cluster=section)
    osds, groups = len(site_of(campaign.cluster).osds), len(campaign.groups)
    limit = int(setting_options(campaign.cluster)["global"]["mon_max_pg_per_osd"])
    # As the monitors count before they make the last group's pool.
    assert groups * 16384 * 3 <= limit * osds


def test_settings_become_options(campaign_of: Make) -> None:
    plain = setting_options(campaign_of().cluster)["global"]
    assert plain["rbd_cache"] == "false"
    assert plain["osd_pool_default_pg_autoscale_mode"] == "off"
    assert "osd_memory_target" not in plain
    settings = {"osd_memory_target": "16G", "rbd_cache": True, "pg_autoscaler": True}
    chosen = setting_options(campaign_of(cluster={"settings": settings}).cluster)["global"]
    assert chosen["osd_memory_target"] == str(16 << 30)
    assert chosen["rbd_cache"] == "true"
    assert chosen["osd_pool_default_pg_autoscale_mode"] == "on"


@pytest.mark.parametrize(("size", "number"), [("1K", 1024), ("512M", 512 << 20), ("4T", 4 << 40)])
def test_sizes(size: str, number: int) -> None:
    assert size_bytes(size) == number
