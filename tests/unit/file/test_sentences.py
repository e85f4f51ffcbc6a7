"""What people read when a key of theirs is wrong: where, what, and what would be right."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from cbt_crypto.cluster_overlays import OVERLAYS
from cbt_crypto.plan.file import Campaign

pytestmark = pytest.mark.unit

Problems = Callable[..., dict[str, str]]
Refusal = Callable[[str], str]

CLUSTER = """\
cluster:
  head: a
  clients: [a]
  osds: [a, b, c]
  mons: {a: {a: 10.0.0.1}}
  mgrs: {a: {x: ~}}
"""


def one(problems: dict[str, str]) -> tuple[str, str]:
    assert len(problems) == 1, problems
    return next(iter(problems.items()))


def test_file_line_key_and_nearest_name(refusal_of: Refusal) -> None:
    text = f"{CLUSTER}  settings:\n    rbd_cahce: true\nbenchmarks: {{rbd_single_client: {{}}}}\n"
    assert refusal_of(text) == (
        'campaign.yaml:8: cluster.settings.rbd_cahce: unknown key; did you mean "rbd_cache"?'
    )


def test_the_line_of_a_list_s_element(refusal_of: Refusal) -> None:
    text = f"""{CLUSTER}benchmarks:
  rbd_single_client:
    workloads:
      op_size:
        - 4096
        - large
"""
    assert refusal_of(text) == (
        "campaign.yaml:12: benchmarks.rbd_single_client.workloads.op_size[1]: "
        "must be a whole number, not 'large'"
    )


def test_everything_that_is_wrong_is_said_at_once(refusal_of: Refusal) -> None:
    text = CLUSTER.replace("head", "haed") + "  iterations: 0\n  rebuild: often\nbenchmark: {}\n"
    assert refusal_of(text).splitlines() == [
        'campaign.yaml:9: benchmark: unknown section "benchmark"; did you mean "benchmarks"?',
        "campaign.yaml:1: benchmarks: this section is missing; docs/file.md shows it",
        "campaign.yaml:1: cluster.head: is missing; docs/file.md describes it",
        "campaign.yaml:7: cluster.iterations: should be greater than or equal to 1, not 0",
        "campaign.yaml:8: cluster.rebuild: should be 'scenario', 'configuration', 'needed' or "
        "'never', not 'often'",
        'campaign.yaml:2: cluster.haed: unknown key; did you mean "head"?',
    ]


@pytest.mark.parametrize(
    ("cluster", "key", "sentence"),
    [
        ({"osds_per_nod": 2}, "cluster.osds_per_nod", 'unknown key; did you mean "osds_per_node"?'),
        (
            {"pool_profiles": {"rbd": {"pgsize": 4}}},
            "cluster.pool_profiles.rbd.pgsize",
            'unknown key; did you mean "pg_size"?',
        ),
        ({"iterations": True}, "cluster.iterations", "must be a whole number, not true"),
        ({"iterations": "3"}, "cluster.iterations", "must be a whole number, not '3'; write 3"),
        (
            {"configurations": {"Secure": "secure_messenger"}},
            "cluster.configurations.Secure",
            "must be a mapping of names to values, not 'secure_messenger'; write "
            "{secure_messenger: {}}",
        ),
        (
            {"mons": {"node0": "10.0.0.1"}},
            "cluster.mons.node0",
            "must be a mapping of names to values, not '10.0.0.1'; write {a: 10.0.0.1}",
        ),
        (
            {"mgrs": {"node0": "x"}},
            "cluster.mgrs.node0",
            "must be a mapping of names to values, not 'x'; write {x: ~}",
        ),
        (
            {"osd_devices": ["/dev/sdb", "/dev/sdc"]},
            "cluster.osd_devices",
            "names 2 devices for osds_per_node: 1; remove some or raise osds_per_node",
        ),
        ({"iterations": 2.0}, "cluster.iterations", "must be a whole number, not 2.0"),
        ({"wipe": "yes"}, "cluster.wipe", "must be true or false or a list, not 'yes'"),
        ({"wipe": 1}, "cluster.wipe", "must be true or false or a list, not 1"),
        ({"conf_file": ["a"]}, "cluster.conf_file", "must be a text, not a list; write a"),
        ({"conf_file": ["a", "b"]}, "cluster.conf_file", "must be a text, not a list"),
        (
            {"settings": {"osd_memory_target": 16}},
            "cluster.settings.osd_memory_target",
            "must be a text, not 16; write 16G",
        ),
        (
            {"settings": {"osd_memory_target": 900}},
            "cluster.settings.osd_memory_target",
            "must be a text, not 900; write 900M",
        ),
        (
            {"settings": {"osd_memory_target": 4 << 30}},
            "cluster.settings.osd_memory_target",
            "must be a text, not 4294967296; write 4G",
        ),
        ({"clients": {"a": 1}}, "cluster.clients", "must be a list, not a mapping"),
        (
            {"mgrs": ["head"]},
            "cluster.mgrs",
            "must be a mapping of names to values, not a list; write {head: {x: ~}}",
        ),
        ({"clients": []}, "cluster.clients", "is empty; give at least one"),
        ({"configurations": {}}, "cluster.configurations", "is empty; give at least one"),
        (
            {"osd_devices": 5},
            "cluster.osd_devices",
            "must be a text or a list or a mapping of names to values, not 5",
        ),
        (
            {"osd_devices": "dev/sdb"},
            "cluster.osd_devices",
            "must be an absolute path, not 'dev/sdb'",
        ),
        (
            {"osd_file_size": "8GB"},
            "cluster.osd_file_size",
            "must be a number with one of the units K, M, G, T, as 16G, not '8GB'; write 8G",
        ),
        ({"fs": "xfs"}, "cluster.fs", "should be 'bluestore', not 'xfs'"),
        (
            {"configurations": {"LUKS": None}},
            "cluster.configurations.LUKS",
            "must be a mapping of names to values, not nothing; write {} for an empty one",
        ),
        (
            {"configurations": {"A": {"secure_mesenger": {}}}},
            "cluster.configurations.A.secure_mesenger",
            'unknown overlay "secure_mesenger"; did you mean "secure_messenger"?',
        ),
        (
            {"configurations": {"A [1]": {"cpuset": {"osd_core": 3}}}},
            "cluster.configurations.A [1].cpuset.osd_core",
            'unknown key; did you mean "osd_cores"?',
        ),
        (
            {"configurations": {"A": {}, "B": {}}, "baseline": "C"},
            "cluster.baseline",
            'unknown configuration "C"; valid are: A, B',
        ),
        ({"configurations": {1: {}}}, "cluster.configurations[1]", "must be a text, not 1"),
    ],
)
def test_cluster(problems_of: Problems, cluster: Any, key: str, sentence: str) -> None:
    found, said = one(problems_of(cluster=cluster))
    assert found == key
    assert said == sentence


@pytest.mark.parametrize(
    ("cluster", "key", "sentence"),
    [
        ({"osds": ["a", "b", "a"]}, "cluster.osds", 'names the host "a" twice; keep one'),
        (
            {"osds": ["a[0-4]"]},
            "cluster.osds[0]",
            "must be one host's name or address, not 'a[0-4]'; write each host",
        ),
        ({"clients": ["a", "a"]}, "cluster.clients", 'names the host "a" twice; keep one'),
        ({"mons": {"head": ...}}, "cluster.mons", "is empty; name at least one host"),
        (
            {"mons": {"b": {"a": "10.0.0.2"}}},
            "cluster.mons",
            'names the daemon "a" twice; keep one',
        ),
        (
            {"mons": {"b": {"b": "10.0.0.1"}}},
            "cluster.mons",
            'names the address "10.0.0.1" twice; keep one',
        ),
        (
            {"osd_devices": ["/dev/a", "/dev/a"], "osds_per_node": 2},
            "cluster.osd_devices",
            'names the device "/dev/a" twice; keep one',
        ),
        (
            {"osd_devices": ["/dev/a"], "osds_per_node": 2},
            "cluster.osd_devices",
            "names 1 device for osds_per_node: 2; add devices or lower osds_per_node",
        ),
        (
            {"osd_devices": "/dev/sdb", "osds_per_node": 2},
            "cluster.osd_devices",
            "is one device for osds_per_node: 2; put {n} where the OSD's number goes, or list "
            "the devices",
        ),
        (
            {"pool_profiles": {"rbd": {"pg_size": 8, "pgp_size": 16}}},
            "cluster.pool_profiles.rbd.pgp_size",
            "is larger than pg_size, 8; lower it",
        ),
        (
            {"pool_profiles": {"rbd": {"replication": 2, "min_size": 3}}},
            "cluster.pool_profiles.rbd.min_size",
            "is larger than replication, 2; lower it",
        ),
        (
            {"osd_memory_target": "8G"},
            "cluster.osd_memory_target",
            "unknown key; write it in settings: {osd_memory_target: ...}",
        ),
        (
            {"osd_op_queue": "wpq"},  # it was meant for osds_per_node, which is as long
            "cluster.osd_op_queue",
            "unknown key; docs/file.md lists all; options of Ceph go to conf_file, or to "
            "ceph_options",
        ),
        (
            {"mons": {"mon0": {"a": "192.168.10.300"}}},
            "cluster.mons.mon0.a",
            "is no IPv4 address or port, not '192.168.10.300'",
        ),
        (
            {"osds": ["1.1.1.256"]},
            "cluster.osds[0]",
            "is no IPv4 address or port, not '1.1.1.256'",
        ),
        (
            {"benchmarks": {"rbd_single_client": {}}},
            "cluster.benchmarks",
            "this is a section; move it to the left edge",
        ),
        (
            {"pool_profiles": {"rbd": {"size": 3}}},
            "cluster.pool_profiles.rbd.size",
            'unknown key; did you mean "replication"?',
        ),
        # Its placement groups would never be clean, which an hour of waiting said.
        (
            {"replication": [1, 3]},
            "cluster.replication",
            "makes 3 copies, and the cluster has 2 OSDs; add OSDs, or lower it",
        ),
        (
            {"replication": ..., "osds": ["o0"]},
            "cluster.pool_profiles.rbd.replication",
            "makes 3 copies, and the cluster has 1 OSD; add OSDs, or say cluster.replication: 1",
        ),
    ],
)
def test_values_that_do_not_go_together(
    problems_of: Problems, cluster: Any, key: str, sentence: str
) -> None:
    assert problems_of(cluster=cluster)[key] == sentence


def test_what_named_workloads_share_is_wrong_once_and_where_it_stands(
    problems_of: Problems,
) -> None:
    """`time: 60s` was wrong twice, at keys and in lines where it was not written."""
    workloads = {"small": {"op_size": 4096}, "large": {"op_size": 65536}}
    section = {"time": "60s", "workloads": workloads}
    found, said = one(problems_of(benchmarks={"rbd_single_client": section}))
    assert found == "benchmarks.rbd_single_client.time" and said.endswith("; write 60")
    section = {"workloads": {**workloads, "large": {"op_size": 65536, "time": "60s"}}}
    found, said = one(problems_of(benchmarks={"rbd_single_client": section}))
    assert found == "benchmarks.rbd_single_client.workloads.large.time"


def test_a_pool_has_as_many_groups_for_placement(campaign_of: Callable[..., Campaign]) -> None:
    """`pg_size: 512` alone left pgp_num at 128, in silence."""
    profiles = {"rbd": {"pg_size": 512}, "few": {"pg_size": 64, "pgp_size": 32}, "usual": {}}
    pools = campaign_of(cluster={"pool_profiles": profiles}).cluster.pool_profiles
    assert {name: pool.pgp_size for name, pool in pools.items()} == {
        "rbd": 512, "few": 32, "usual": 128,
    }  # fmt: skip


def test_workloads_may_have_names_as_cbt_s_have(
    campaign_of: Callable[..., Campaign], problems_of: Problems
) -> None:
    """ "unknown key; valid are" and 31 names were the answer."""
    workloads = {"small": {"op_size": 4096, "mode": ["randread", "randwrite"], "iodepth": 16},
                 "large": {"op_size": 4194304, "mode": "write", "time": 20}}  # fmt: skip
    section = {"time": 10, "workloads": workloads}
    found = campaign_of(benchmarks={"rbd_single_client": section}).scenarios["rbd_single_client"]
    made = [tuple(map(one.model_dump().get, ("op_size", "mode", "time"))) for one in found]
    assert made == [(4096, "randread", 10), (4096, "randwrite", 10), (4194304, "write", 20)]
    workloads["large"]["op_sise"] = 1
    assert list(problems_of(benchmarks={"rbd_single_client": section})) == [
        "benchmarks.rbd_single_client.workloads.large.op_sise"
    ]


def test_a_number_beyond_what_python_prints(refusal_of: Refusal) -> None:
    text = f"{CLUSTER}  iterations: 0x{'f' * 6000}\nbenchmarks: {{rbd_single_client: {{}}}}\n"
    assert refusal_of(text) == (
        "campaign.yaml:7: cluster.iterations: is a number of more than 100 digits"
    )


def test_devices_by_host_name_each_host(problems_of: Problems) -> None:
    found = problems_of(cluster={"osd_devices": {"o0": ["/dev/a"], "o7": ["/dev/b"]}})
    assert found == {
        "cluster.osd_devices.o7": "is none of the hosts in cluster.osds; add it there, or "
        "remove it",
        "cluster.osd_devices.o1": "names 0 devices for osds_per_node: 1; add devices or lower "
        "osds_per_node",
    }


def test_an_existing_cluster_needs_no_daemons(campaign_of: Callable[..., Any]) -> None:
    absent = dict.fromkeys(("osds", "mons", "mgrs"), ...)
    assert campaign_of(cluster={"use_existing": True, **absent}).cluster.osds == []


def test_an_overlay_s_own_validation_is_its_sentence(problems_of: Problems) -> None:
    found, said = one(problems_of(cluster={"configurations": {"A": {"cpuset": {}}}}))
    assert found == "cluster.configurations.A.cpuset"
    assert said == "name osd_cores, client_cores or both"


@pytest.mark.parametrize("name", sorted(OVERLAYS))
def test_an_unknown_option_of_any_overlay(problems_of: Problems, name: str) -> None:
    found = problems_of(cluster={"configurations": {"A": {name: {"no_such_option": 1}}}})
    # The keys of ceph_options are sections, those of pools are pools.
    path, said = f"cluster.configurations.A.{name}", "unknown key; "
    if name == "ceph_options":
        assert found[path].startswith("no_such_option: is no section; write global, mon, ")
        return
    said = "must be a text" if name == "pools" else said
    assert found[f"{path}.no_such_option"].startswith(said)


@pytest.mark.parametrize("wrong", [["a"], "osd_op_queue", {1: 2}])
def test_a_section_of_ceph_options_is_a_mapping_of_names(
    problems_of: Problems, wrong: object
) -> None:
    found = problems_of(cluster={"configurations": {"A": {"ceph_options": {"osd": wrong}}}})
    ((path, said),) = found.items()
    assert path.startswith("cluster.configurations.A.ceph_options.osd")
    assert said.startswith("must be a ")


@pytest.mark.parametrize(
    ("section", "key", "sentence"),
    [
        ({"op_sizes": 4096}, "op_sizes", 'unknown key; did you mean "op_size"?'),
        ({"workloads": {"moed": "read"}}, "workloads.moed", 'unknown key; did you mean "mode"?'),
        ({"workloads": {"moed": ["read"]}}, "workloads.moed", 'unknown key; did you mean "mode"?'),
        (
            {"op_size": [4096, 100]},
            "op_size[1]",
            "should be a multiple of 512, not 100; write 512",
        ),
        ({"op_size": -5}, "op_size", "should be a multiple of 512, not -5; write 512"),
        ({"op_size": 0}, "op_size", "should be greater than or equal to 512, not 0"),
        ({"op_size": "4k"}, "op_size", "must be a whole number, not '4k'; write 4096"),
        ({"op_size": 4000}, "op_size", "should be a multiple of 512, not 4000; write 4096"),
        (
            {"op_size": [4096, 1000000]},
            "op_size[1]",
            "should be a multiple of 512, not 1000000; write 1048576",
        ),
        ({"vol_size": "8G"}, "vol_size", "must be a whole number, not '8G'; write 8192"),
        ({"ramp": "60s"}, "ramp", "must be a whole number, not '60s'; write 60"),
        ({"ramp": "2m"}, "ramp", "must be a whole number, not '2m'; write 120"),
        ({"iodepth": "2m"}, "iodepth", "must be a whole number, not '2m'"),
        (
            {"time": "60s"},
            "time",
            "must be a whole number or a mapping of names to values, not '60s'; write 60",
        ),
        ({"bs": 4096}, "bs", 'unknown key; did you mean "op_size"?'),
        ({"precision": 0.02}, "precision", "unknown key; write it in time: {precision: ...}"),
        ({"workload": {"a": {}}}, "workload", 'unknown key; did you mean "workloads"?'),
        ({"time": {"precision": 2}}, "time.precision", "must be a text, not 2; write 2%"),
        ({"op_size": []}, "op_size", "is an empty list; give at least one value"),
        ({"iodepth": True}, "iodepth", "must be a whole number, not true"),
        ({"cmd_path": 5}, "cmd_path", "must be a text, not 5"),
        (
            {"mode": ["randread", "random"]},
            "mode[1]",
            "should be 'read', 'write', 'randread', 'randwrite', 'rw' or 'randrw', not 'random'",
        ),
        ({"workloads": 5}, "workloads", "must be a mapping of names to values, not a number"),
        ({"workloads": ["a"]}, "workloads", "must be a mapping of names to values, not a list"),
        ({"op_size": {"a": 1}}, "op_size", "must be a whole number, not a mapping"),
        (
            {"configuration": ["Default", "Defualt"]},
            "configuration",
            'unknown configuration "Defualt"; did you mean "Default"?',
        ),
        (
            {"pool_profile": "rdb"},
            "pool_profile",
            'unknown pool profile "rdb"; did you mean "rbd"?',
        ),
        (
            {"op_size": list(range(512, 1512)), "iodepth": list(range(1, 201))},
            "",
            "its lists, and what is above it, make more than 20000 cells; shorten them",
        ),
    ],
)
def test_a_scenario(problems_of: Problems, section: Any, key: str, sentence: str) -> None:
    found, said = one(problems_of(benchmarks={"rbd_single_client": section}))
    assert found == f"benchmarks.rbd_single_client.{key}".rstrip(".")
    assert said == sentence


def test_the_limit_of_cells_is_that_of_all_parts(problems_of: Problems) -> None:
    """Forty parts below it took 60 s and 1.6 GB."""
    parts = [{}, {"op_size": list(range(512, 1512)), "iodepth": list(range(1, 101))}]
    found, said = one(problems_of(benchmarks={"rbd_single_client": parts}))
    assert found == "benchmarks.rbd_single_client[1]"
    assert "make more than 20000 cells" in said


@pytest.mark.parametrize(
    ("overlays", "where", "wanted"),
    [
        ({"osd": {"osd_memory_target": "2G"}}, "osd", "ceph_options: {osd: ...}"),
        ({"osd.3": {"debug_osd": 1}}, "osd.3", "ceph_options: {osd.3: ...}"),
        ({"no_read_workqueue": {}}, "no_read_workqueue", "luks: {no_read_workqueue: ...}"),
    ],
)
def test_what_is_inside_an_overlay_is_sent_there(
    problems_of: Problems, overlays: dict[str, Any], where: str, wanted: str
) -> None:
    """`LUKS: {osd: ...}` was answered with "did you mean pools?"."""
    found, said = one(problems_of(cluster={"configurations": {"A": overlays}}))
    assert found == f"cluster.configurations.A.{where}"
    assert said == f"is no overlay; write it in {wanted}"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("key_size", "256b", "must be a whole number, not '256b'"),
        ("key_size", 256.5, "must be a whole number, not 256.5"),
        ("no_read_workqueue", "perhaps", "must be true or false, not 'perhaps'"),
    ],
)
def test_a_value_of_another_kind_in_an_overlay(
    problems_of: Problems, key: str, value: object, said: str
) -> None:
    """It was pydantic's own sentence: unable to parse string as an integer."""
    _, found = one(problems_of(cluster={"configurations": {"A": {"luks": {key: value}}}}))
    assert found == said


def test_an_option_of_an_overlay_that_has_none(problems_of: Problems) -> None:
    configurations = {"Secure": {"secure_messenger": {"cipher": 1}}}
    _, sentence = one(problems_of(cluster={"configurations": configurations}))
    assert sentence == "unknown key; it takes none; leave it out"


def test_an_unknown_benchmark(problems_of: Problems) -> None:
    found, said = one(problems_of(benchmarks={"rbd_single_client": ..., "rbd_multiclient": {}}))
    assert found == "benchmarks.rbd_multiclient"
    assert said == 'unknown benchmark "rbd_multiclient"; did you mean "rbd_multi_client"?'


def test_no_benchmark(problems_of: Problems) -> None:
    found, said = one(problems_of(benchmarks={"rbd_single_client": ...}))
    assert found == "benchmarks"
    assert said.startswith("is empty; name a scenario: rbd_multi_client, rbd_single_client, ")


def test_a_baseline_that_some_scenario_does_not_measure(problems_of: Problems) -> None:
    found, said = one(
        problems_of(
            cluster={"configurations": {"A": {}, "B": {}}, "baseline": "B"},
            benchmarks={"rbd_multi_client": {"configuration": ["A"]}},
        )
    )
    assert found == "benchmarks.rbd_multi_client.configuration"
    assert said == (
        'does not measure the baseline, "B"; add it, or there is nothing to compare with'
    )


@pytest.mark.parametrize(
    ("profiles", "key", "sentence"),
    [
        (
            {"collectl": {"nodes": ["baseline"]}},
            "collectl.nodes[0]",
            "should be 'head', 'clients', 'osds', 'mons' or 'mgrs', not 'baseline'",
        ),
        (
            {"perf": {"args": "record -e 'cycles"}},
            "perf.args",
            'has a quotation mark that is not closed, not "record -e \'cycles"',
        ),
        ({"blktrace": {}}, "blktrace", "unknown key; valid are: collectl, sampler, perf, stacks"),
    ],
)
def test_monitoring(problems_of: Problems, profiles: Any, key: str, sentence: str) -> None:
    found, said = one(problems_of(monitoring_profiles=profiles))
    assert found == f"monitoring_profiles.{key}"
    assert said == sentence


def test_a_profile_s_name_alone_means_its_defaults(campaign_of: Callable[..., Any]) -> None:
    assert campaign_of(monitoring_profiles=None).monitoring.perf is None
    perf = campaign_of(monitoring_profiles={"perf": None}).monitoring.perf
    assert (perf.nodes, perf.perf_cmd) == (["osds"], "perf")


@pytest.mark.parametrize(
    ("load", "cluster", "where", "sentence"),
    [
        ({"scrub": 5, "deep_scrub": 5}, {}, "", "takes one of recovery, scrub and deep_scrub"),
        (
            {"deep_scrub": 5}, {"layout": "side_by_side", "osds_per_node": 8}, ".deep_scrub",
            "does not go with side_by_side",
        ),
        ({"clients": [1, 9]}, {}, ".clients", "names 9, and cluster.clients has"),
    ],
)  # fmt: skip
def test_scrubs_and_clients_that_do_not_go_together(
    problems_of: Problems, load: Any, cluster: Any, where: str, sentence: str
) -> None:
    found = problems_of(cluster=cluster, benchmarks={"rbd_multi_client": load})
    assert sentence in found[f"benchmarks.rbd_multi_client{where}"]


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ({"osds_per_node": 1}, "takes one of"),
        ({"layout": "side_by_side", "osds_per_node": 8}, "does not go with side_by_side"),
    ],
)
def test_an_osd_can_only_be_taken_out_where_others_hold_its_part(
    problems_of: Problems, cluster: dict[str, Any], sentence: str
) -> None:
    load = {"rbd_single_client": {"recovery": 5, "time": 60}}
    found = problems_of(cluster=cluster, benchmarks=load)
    assert sentence in found["benchmarks.rbd_single_client.recovery"]


def test_bytes_where_a_manager_has_nothing(refusal_of: Refusal) -> None:
    text = CLUSTER.replace("{x: ~}", "{x: !!binary gP8=}")
    assert "cluster.mgrs.a.x" in refusal_of(f"{text}benchmarks: {{rbd_single_client: {{}}}}\n")
