"""No key and no password reaches an archive, whatever a user's own ceph.conf and file have."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cbt_crypto.cluster_overlays import tunnel_on_host
from cbt_crypto.cluster_overlays.base import Overlay, Seen
from cbt_crypto.cluster_overlays.ceph_options import CephOptions
from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.engine.choice import embedded
from cbt_crypto.hosts import ceph_conf, command_log, keys_on_host, requirement
from cbt_crypto.hosts.devices import destroy, rbd_images
from cbt_crypto.hosts.secret import document_without, is_secret, masked, options_without
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.plan.file import Campaign, read_campaign
from cbt_crypto.plan.steps import plan
from cbt_crypto.run.cell.proof import Evidence, judge
from cbt_crypto.run.cell.watch import WatchRecord
from cbt_crypto.run.journal import Journal, path_of
from cbt_crypto.run.resume import check_archive, write_plan

pytestmark = pytest.mark.unit

#: Options of Ceph's own documentation, of its dashboard's and its modules', and of S3's tools.
NAMES = [
    "rgw_keystone_admin_password", "rgw keystone admin token", "rgw_ldap_secret", "rgw_sts_key",
    "rgw_crypt_default_encryption_key", "rgw_crypt_kmip_password", "rgw_crypt_kmip_client_key",
    "rgw_crypt_s3_kms_encryption_keys", "rgw_crypt_vault_ssl_clientkey", "rgw_opa_token", "key",
    "rgw_sts_client_secret", "mgr/dashboard/RGW_API_SECRET_KEY", "mgr/dashboard/RGW_API_ACCESS_KEY",
    "mgr/dashboard/GRAFANA_API_PASSWORD", "mgr/dashboard/ISCSI_API_PASSWD", "mgr/influx/password",
    "mgr/telegraf/auth_token", "mgr/cephadm/registry_password", "access_key", "secretKey",
    "rgw_keystone_barbican_password", "client-secret", "MGR/DASHBOARD/SSL_KEY",
]  # fmt: skip
#: What a password may look like; those of fewer than four characters are words too often.
SECRETS = st.text("abcXYZ019!$%&*+-./:=?@^_~(){}<>", min_size=4, max_size=40).map(
    lambda text: f"x{text}9z"
)


@pytest.mark.parametrize(
    "form", ["{} = {}", "\t{}={}", '    "{}": "{}",', "{}: {}", "{} = \\\n  {}"]
)
@pytest.mark.parametrize("name", NAMES)
@given(secret=SECRETS)
def test_none_is_shown_of_any_option(name: str, form: str, secret: str) -> None:
    shown = options_without(
        "[global]\n" + form.format(name, secret) + "\nosd_pool_default_size = 3\n"
    )
    assert secret not in shown and "***" in shown
    assert shown.endswith("osd_pool_default_size = 3\n")


@given(secret=SECRETS, name=st.sampled_from(NAMES))
def test_none_is_shown_of_any_document(name: str, secret: str) -> None:
    shown = document_without(
        {"benchmarks": {"a": [{name: secret}, {name: [secret]}]}, "title": "t"}
    )
    assert secret not in json.dumps(shown) and shown["title"] == "t"


@pytest.mark.parametrize(
    "line",
    [
        "rgw_frontends = beast port=80 ssl_password=hunter2", "rgw_ldap_uri = ldaps://me:hunter2@a",
        "anything = AQhunter2Jrhpn1DRAA9jO1pPCjO4UjDjYZ3Ea7bQ==", "rgw_x_key = /hunter2/abc+d==",
        "x = -----BEGIN PRIVATE KEY-----hunter2",
    ],
)  # fmt: skip
def test_nor_within_a_value(line: str) -> None:
    assert "hunter2" not in options_without(line)


@pytest.mark.parametrize(
    "line",
    [
        "keyring = /etc/ceph/k", "auth_cluster_required = cephx", "osd_deep_scrub_keys = 1024",
        "ms_cluster_mode = secure", "rgw_keystone_admin_password_path = /etc/p", "debug_auth = 1/5",
        "rgw_crypt_vault_secret_engine = transit", "fsid = 2bd3cf07-1d1c-4a5b-8d3b-0c5a1b2c3d4e",
        "rgw_crypt_s3_kms_key_template = $keyid", "bluestore_bypass_reads = 1",
    ],
)  # fmt: skip
def test_what_is_none_is_shown(line: str) -> None:
    assert options_without(line) == line


def test_every_option_of_this_ceph() -> None:
    """By Ceph's own list of options: those that a reader would take for a secret."""
    if not shutil.which("ceph-conf"):
        pytest.skip("needs ceph-common, for its list of options")
    command = ["ceph-conf", "--show-config"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    named = [line.partition(" = ")[0] for line in printed.splitlines()]
    assert len(named) > 1000
    kept = {name for name in named if is_secret(name, "hunter2")}
    assert {"key", "rgw_keystone_admin_password", "rgw_crypt_default_encryption_key"} <= kept
    words = ("password", "secret", "passphrase", "credential")
    told = {name for name in named if any(word in name for word in words)} - kept
    assert told <= {"rgw_crypt_vault_secret_engine", "rgw_keystone_admin_password_path"}
    # What is printed as it is by default loses nothing but what may be one.
    changed = set(printed.splitlines()) - set(options_without(printed).splitlines())
    assert {line.partition(" = ")[0] for line in changed} <= kept


def test_what_the_archive_gets(
    tmp_path: Path, write_campaign: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_campaign()
    document = yaml.safe_load(path.read_text())
    document["title"] = "t"
    campaign: Campaign = read_campaign(path)
    campaign.document["benchmarks"]["rbd_single_client"]["secret_key"] = "hunter2"
    archive = tmp_path / "archive"
    write_plan(archive, plan(campaign))
    Journal(archive, "r1").begin(campaign, {"pid": 1}, embedded())
    text = path_of(archive).read_text() + (archive / "results" / "plan.json").read_text()
    assert "hunter2" not in text and '"secret_key": "***"' in text
    check_archive(archive, campaign)  # and it is known to be of this file


def test_a_conf_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "ceph.conf"
    path.write_text("[client.rgw]\nrgw keystone admin password = hunt\\\n  er2\n")
    shown = options_without(ceph_conf.render(ceph_conf.read(path)))
    assert shown == "[client.rgw]\nrgw_keystone_admin_password = ***\n"


PASSWORD = {"rgw_keystone_admin_password": "hunter2"}


def test_what_proves_an_option_that_is_a_password() -> None:
    """It was in the options, the evidence and the reason of proof.json."""
    osd = Osd(0, "a", "/dev/x", "/t/osd.0", "/t/osd.0.asok", "/t/osd.0.pid")
    site = Site("/t", "/t/c.conf", "a", ("a",), (osd,))
    named: dict[str, tuple[Overlay, ...]] = {"plain": (), "secret": (CephOptions(osd=PASSWORD),)}
    (name,) = PASSWORD
    for overlays in CephOptions.beside(named).values():
        for value, later in (
            ("hunter2", "hunter2"),
            ("hunter2", "hunter2-b"),
            ("hunter2-a", "hunter2"),
        ):
            looks = [
                {"ceph_options": {"a": json.dumps({"osd.0": {name: {"value": now, "set": []}}})}}
                for now in (value, later)
            ]
            seen = [Seen({"osd.0": {name: now}}, 1.0) for now in ("hunter2-b", "hunter2-c")]
            watched = {"a": WatchRecord({"ceph_options": seen}, {}, 2)}
            found = json.dumps(judge(Stack(overlays), site, "c", Evidence(*looks, watched)))
            assert "hunter2" not in found and '"rgw_keystone_admin_password": "***"' in found


def test_what_is_sent_to_hosts_is_in_no_process_s_arguments() -> None:
    """A password was an argument of python3, which every user of a host sees."""
    site = Site("/t", "/t/c.conf", "a", ("a",), (Osd(0, "a", "/d", "/o", "/s", "/p"),))
    named: dict[str, tuple[Overlay, ...]] = {"c": (CephOptions(osd=PASSWORD),)}
    ((overlay,),) = CephOptions.beside(named).values()
    assert "hunter2" not in str(overlay.ask(site)), "whose answers the archive keeps"
    known = {name: {"type": "str", "flags": ["runtime"], "values": {}} for name in PASSWORD}
    text = overlay.decided({"a": json.dumps(known)}).after_osds(site)["a"]
    command, _, rest = text.partition("<<'PYTHON_PROGRAM'\n")
    assert "hunter2" in rest and "hunter2" not in command
    assert "hunter2" not in command_log.line(0, ["a"], "set", text, "exit 0", 1)


@pytest.mark.parametrize(
    "text",
    [
        'python3 - \'{"wanted": {"rgw_keystone_admin_password": ["hunter2"]}}\'',
        "rgw_keystone_admin_password = hunter2", "env AWS_SECRET_ACCESS_KEY=hunter2-long s3",
    ],
)  # fmt: skip
def test_a_command_that_is_logged(text: str) -> None:
    """`password` was not seen in `admin_password`."""
    assert "hunter2" not in masked(text) and "***" in masked(text)
    assert masked('{"prefix": "osd set", "key": "noout"}').endswith('"noout"}')


@pytest.mark.parametrize("planted", ["link", "stranger", "open"])
def test_a_place_for_keys_that_somebody_made_first(tmp_path: Path, planted: str) -> None:
    """/dev/shm/cbt-crypto led to /etc: its mode was changed, and keys were written there."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else too")
    real, place = tmp_path / "etc", tmp_path / "cbt-crypto"
    real.mkdir(mode=0o755)
    assert not keys_on_host.is_ours_alone(str(place))
    if planted == "link":
        place.symlink_to(real)
    else:
        place.mkdir(mode=0o700 if planted == "stranger" else 0o777)
        place.chmod(0o700 if planted == "stranger" else 0o777)
    if planted == "stranger":
        os.chown(place, 65534, 65534)
    assert not keys_on_host.is_ours_alone(str(place))


def test_what_holds_keys_leaves_no_core(tmp_path: Path) -> None:
    """The limit of the shell that cryptsetup is started from, and of the tunnel's program."""
    shells = (rbd_images.as_root("ulimit -c"), destroy.luks(str(tmp_path), "ulimit -c"))
    for text in shells:
        command = ["sh", "-c", f"ulimit -c unlimited 2> /dev/null; SUDO=\n{text}"]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "0\n"
    program = inspect.getsource(tunnel_on_host)
    before = program.index('ACTIONS[given["action"]](given)')
    assert program.index("setrlimit(resource.RLIMIT_CORE, (0, 0))") < before


def test_swap_is_told() -> None:
    told = "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 5\n/swap file 1 0 -2\n"
    text = requirement.SWAP.replace("/proc/swaps", "")
    done = subprocess.run(
        ["sh", "-c", text], input=told, capture_output=True, text=True, check=False
    )
    assert done.stdout == "swap /swap\n"
    needs = Network(type="wireguard").requirements(Site("/t", "/c", "a", ("b",), (), mons=("a",)))
    advices = [
        need.advice("ok\n" + done.stdout) for need in needs if isinstance(need, requirement.Fact)
    ]
    assert advices == ["keys in memory may be written to swap (/swap); swapoff -a for the campaign"]


def test_the_campaign_s_file_in_the_archive(
    tmp_path: Path, write_campaign: Callable[..., Path]
) -> None:
    path = write_campaign(benchmarks={"rbd_single_client": {"time": 1}})
    with path.open("a") as file:
        file.write("client_endpoints: {gateway: {secret_key: hunter2, access_key: hunter2abc}}\n")
    settings = embedded().settings
    settings.initialize(
        argparse.Namespace(config_file=str(path), archive=str(tmp_path / "a"), conf="")
    )
    assert settings.client_endpoints["gateway"]["secret_key"] == "hunter2", "it is needed"
    kept = (tmp_path / "a" / "results" / "cbt_config.yaml").read_text()
    assert "hunter2" not in kept and "secret_key: '***'" in kept
