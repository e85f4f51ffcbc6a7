"""Volumes that clients encrypt: what is refused, what is planned, and what proves them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from cbt_crypto.benchmarks.base import ClusterCommands
from cbt_crypto.benchmarks.rbd import RbdNbd
from cbt_crypto.cluster_overlays import rbd_encryption_on_host
from cbt_crypto.cluster_overlays.base import Seen, Transition
from cbt_crypto.cluster_overlays.rbd_encryption import RbdEncryption
from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.errors import UsageError
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import Site, VolumeEncryption
from cbt_crypto.plan.file import Campaign
from cbt_crypto.plan.layout import cell_site
from cbt_crypto.plan.steps import Prefill, plan

pytestmark = pytest.mark.unit

Make = Callable[..., Campaign]
HERE = Site("/tmp/ours", "/tmp/ours/ceph.conf", "c0", ("c0",), (), active_clients=("c0",))
RBD = {"device": "252:0", "name": "rbd0", "rotational": "0"}


def crypt(cipher: str = "aes-xts-plain64", below: str = "252:0") -> dict[str, str]:
    table = f"0 65536 crypt {cipher} :64:logon:cryptsetup:1-d0 0 {below} 32768"
    return {
        "device": "254:0", "name": "dm-0", "mapping": "cbt-crypto-0-client-v",
        "uuid": "CRYPT-LUKS2-1-cbt", "table": table,
    }  # fmt: skip


def fault(overlay: RbdEncryption, *looks: Any) -> Any:
    return overlay.judge_seen(HERE, {"c0": [Seen(look, float(n)) for n, look in enumerate(looks)]})


def test_dm_crypt_right_over_an_image_is_the_proof() -> None:
    present, absent = RbdEncryption(), RbdEncryption.absent()
    encrypted, plain = [[crypt(), RBD]], [[RBD]]
    assert fault(present, [], encrypted, []) is None
    assert fault(absent, [], plain, []) is None
    assert fault(absent, []) is None, "librbd opens no device"
    assert "is not dm-crypt" in fault(present, [], encrypted, plain)
    assert "is encrypted there" in fault(absent, encrypted)


@pytest.mark.parametrize(
    ("looks", "sentence"),
    [
        (([], []), "no client process was seen on c0 have a volume open"),
        (([[crypt("aes-cbc-plain"), RBD]],), "has cipher aes-cbc-plain and not aes-xts-plain64"),
        (([[crypt(below="8:0"), RBD]],), "is on device 8:0 and not on 252:0"),
        (([[crypt(), {**RBD, "name": "sda"}]],), "is not directly on an image"),
        (([[crypt(), crypt(), RBD]],), "is not directly on an image"),
        (([[{**crypt(), "table": None}, RBD]],), "is not dm-crypt"),
    ],
)
def test_what_contradicts_it(looks: Any, sentence: str) -> None:
    assert sentence in fault(RbdEncryption(), *looks)


def test_files_are_proved_by_what_they_are_on() -> None:
    """Of fio's open files the kernel's numbers count, and what it has mounted of them."""
    site = replace(HERE, filesystem="ext4")
    file, other = {**RBD, "filesystem": "ext4"}, {**RBD, "filesystem": "xfs"}
    for overlay, right, wrong in (
        (RbdEncryption.absent(), [file], [other]),
        (RbdEncryption(), [{**crypt(), "filesystem": "ext4"}, RBD], [crypt(), RBD]),
    ):

        def told(*layers: Any, of: RbdEncryption = overlay) -> Any:
            return of.judge_seen(site, {"c0": [Seen(list(layers), 0.0)]})

        assert told(right) is None
        assert "not of ext4 on RBD" in told(wrong)
        assert "not of ext4 on RBD" in told(right, wrong)
        assert told() == "no client process was seen on c0 have a volume open"
        assert "a file of ext4 in a mapped image" in overlay.judge(site, {}, {}).reason
    on_disk = [{**file, "name": "sda"}]
    assert "is a file of ext4 on sda" in RbdEncryption.absent().judge_seen(
        site, {"c0": [Seen([on_disk], 0.0)]}
    )


def test_an_open_file_is_known_by_its_mount(tmp_path: Path) -> None:
    """The real kernel's: this process has a file of a file system open, below a tmp_dir."""
    script = f"""
mkdir -p {tmp_path}/mnt/v
mount -t tmpfs none {tmp_path}/mnt/v
exec 9> {tmp_path}/mnt/v/file
exec {sys.executable} -c "$PROGRAM"
"""
    program = f"""{shell.program(rbd_encryption_on_host)}
Clients.present = lambda self: [str(os.getpid())]
print(json.dumps(see({{"programs": [], "tmp_dir": {str(tmp_path)!r}}})))
"""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PROGRAM": f"import json\n{program}"},
    )  # fmt: skip
    ((layer,),) = json.loads(done.stdout)
    assert (layer["name"], layer["filesystem"]) == ("tmpfs", "tmpfs")


HEADER = {"offset": 16 << 20, "cipher": "aes-xts-plain64", "key_size": 512, "sector_size": 4096}
LIBRBD = RbdEncryption(by="librbd")


def nbd(stored_mb: int = 64, **others: Any) -> dict[str, Any]:
    served = {
        "options": [], "size": 64 << 20, "begins_with_header": False, "image": "rbd/v",
        "stored": stored_mb << 20, "header": None, **others,
    }  # fmt: skip
    return {"device": "43:0", "name": "nbd0", "served": served}


def decrypted(**others: Any) -> dict[str, Any]:
    options = ["--encryption-format=luks2", "--encryption-passphrase-file=/run/x"]
    return nbd(**{"stored_mb": 80, "options": options, "header": HEADER, **others})


def nbd_fault(overlay: RbdEncryption, *looks: Any) -> Any:
    seen = [Seen(look, float(n)) for n, look in enumerate(looks)]
    return overlay.judge_seen(replace(HERE, on_nbd=True), {"c0": seen})


def test_a_device_of_rbd_nbd_is_proved_by_what_is_behind_it() -> None:
    absent, dm_crypt = RbdEncryption.absent(), RbdEncryption()
    inside = nbd(begins_with_header=True, header=HEADER)
    over = crypt(below="43:0")
    assert nbd_fault(absent, [], [[nbd()]]) is None
    assert nbd_fault(LIBRBD, [], [[decrypted()]]) is None
    assert nbd_fault(dm_crypt, [], [[over, inside]]) is None
    for overlay in (absent, dm_crypt, LIBRBD):
        assert nbd_fault(overlay, []) == "no client process was seen on c0 have a volume open"
    assert "is not dm-crypt" in nbd_fault(dm_crypt, [[nbd()]])
    assert "is encrypted there" in nbd_fault(absent, [[over, inside]])
    assert "on rbd0, and not on a device of rbd-nbd" in nbd_fault(absent, [[RBD]])
    assert "on rbd0, and not on a device of rbd-nbd" in nbd_fault(LIBRBD, [[decrypted()]], [[RBD]])
    # Upstream's benchmarks have an rbd-nbd of their own.
    assert fault(absent, [[nbd(why="is not served by an rbd-nbd of this campaign")]]) is None
    shown = LIBRBD.evidence_seen(HERE, {"c0": [Seen([[decrypted()]], 0.0)]})
    assert shown == {"served": {"c0 nbd0": decrypted()["served"]}}


def test_what_overlays_wrap_is_rbd_nbd_too() -> None:
    commands = ClusterCommands("ceph", "rbd -c x", "env")
    load = RbdNbd(configuration="A", vol_size=64)
    (text,) = load.measure(HERE, "/r", commands, lambda host, it: f"on-{host} {it}").values()
    assert "rbd_of_cluster() { on-c0 rbd -c x " in text
    assert "(s=0; on-c0 $SUDO env TMPDIR=. fio " in text


@pytest.mark.parametrize(
    "layers",
    [
        [decrypted()], [nbd(header=HEADER)], [nbd(stored_mb=80)], [decrypted(header=None)],
    ],
)  # fmt: skip
def test_what_librbd_encrypts_is_not_plain(layers: Any) -> None:
    """Nor is it below dm-crypt."""
    assert "on nbd0, which librbd encrypts" in nbd_fault(RbdEncryption.absent(), [layers])
    over = [crypt(below="43:0"), *layers]
    twice = nbd_fault(RbdEncryption(), [over])
    assert "which librbd encrypts" in twice if layers != [nbd(header=HEADER)] else twice is None


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([nbd()], "on nbd0, which rbd-nbd does not decrypt"),
        ([decrypted(options=[])], "on nbd0, which rbd-nbd does not decrypt"),
        # Its arguments say so, and what is seen is what is stored.
        ([decrypted(begins_with_header=True)], "on nbd0, which rbd-nbd does not decrypt"),
        ([decrypted(header=None)], "whose image rbd/v begins with no LUKS header"),
        ([decrypted(stored_mb=64)], "is 0 bytes smaller than its image, whose data begin at 1"),
        ([decrypted(header={**HEADER, "key_size": 256})], "has key_size 256 and not 512"),
        ([decrypted(header={**HEADER, "sector_size": 512})], "has sector_size 512 and not 4096"),
        ([decrypted(header={**HEADER, "cipher": "x"})], "has cipher x and not aes-xts-plain64"),
        ([crypt(below="43:0"), decrypted()], "is not directly on what librbd decrypts"),
        ([nbd(why="is not served by an rbd-nbd of this campaign")], "on nbd0, which is not served"),
    ],
)  # fmt: skip
def test_what_contradicts_that_librbd_encrypts(layers: Any, sentence: str) -> None:
    assert sentence in nbd_fault(LIBRBD, [[decrypted()]], [layers])


@pytest.fixture
def formatted(tmp_path: Path) -> tuple[VolumeEncryption, Path]:
    """An encryption with sectors of 4096 bytes, and a file that the real cryptsetup formatted."""
    if shutil.which("cryptsetup") is None:
        pytest.skip("cryptsetup is not installed")
    encryption = RbdEncryption(sector_size=4096).volume_encryption()
    assert encryption is not None
    image, key = tmp_path / "image", tmp_path / "key"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    key.write_bytes(bytes(64))
    command = ["cryptsetup", "luksFormat", "-q", *encryption.formatting, "--key-file", key, image]
    subprocess.run(command, check=True, capture_output=True)
    return encryption, image


def test_a_header_says_how_the_data_are_encrypted(formatted: tuple[VolumeEncryption, Path]) -> None:
    """The real one's, as librbd makes it by the same library."""
    with formatted[1].open("rb") as file:
        assert rbd_encryption_on_host.header_of(file.read(1 << 20)) == HEADER


@pytest.mark.parametrize(
    ("backend", "program", "sentence"),
    [
        ("cbt-crypto-0-client/f/rbd/v", "/usr/bin/rbd-nbd", "cannot be looked into: "),
        ("cbt-crypto-1-client/f/rbd/v", "/usr/bin/rbd-nbd", "is not served by an rbd-nbd of this"),
        ("f/rbd/v", "/usr/bin/rbd-nbd", "is not served by an rbd-nbd of this campaign"),
        ("cbt-crypto-0-client/f/rbd/v", "/usr/bin/nbd-client", "is not served by an rbd-nbd of th"),
        (None, "/usr/bin/rbd-nbd", "is not served by an rbd-nbd of this campaign"),
        ("cbt-crypto-0-client/f/rbd/v", None, "cannot be looked into: "),
    ],
)
def test_a_device_that_is_not_ours_says_why(
    tmp_path: Path, backend: Optional[str], program: Optional[str], sentence: str
) -> None:
    """Ours is looked into, which needs a cluster."""
    for folder in ("sys/block/nbd0", "proc/7", "dev"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sys/block/nbd0/pid").write_text("7\n")
    (tmp_path / "sys/block/nbd0/size").write_text("8\n")
    (tmp_path / "dev/nbd0").write_bytes(bytes(4096))
    (tmp_path / "proc/7/cmdline").write_bytes(b"rbd-nbd\0map\0rbd/v\0")
    if backend:
        (tmp_path / "sys/block/nbd0/backend").write_text(backend)
    if program:
        (tmp_path / "proc/7/exe").symlink_to(program)
    asked = {"prefix": "cbt-crypto-0-client", "conf": "/x", "user": "admin"}
    (why,) = rbd_encryption_on_host.served("nbd0", asked, tmp_path).values()
    assert why.startswith(sentence)


@pytest.mark.parametrize(
    "options", [{"cipher": "serpent-xts-plain64"}, {"key_size": 128}, {"sector_size": 512}]
)
def test_librbd_has_ciphers_of_its_own(campaign_of: Make, options: Any) -> None:
    overlays = {"rbd_encryption": {"by": "librbd", **options}}
    with pytest.raises(UsageError, match=r"campaign\.yaml") as refused:
        campaign_of(cluster={"configurations": {"Client": overlays}}, benchmarks={"rbd_nbd": {}})
    assert "configurations.Client.rbd_encryption" in str(refused.value)
    assert "by: librbd has cipher aes-xts-plain64, key_size 256 or 512" in str(refused.value)


def test_librbd_encrypts_for_rbd_nbd_alone(campaign_of: Make) -> None:
    configurations = {"Plain": {}, "Client": {"rbd_encryption": {"by": "librbd"}}}
    benchmarks = {"rbd_single_client": ..., "rbd_krbd": {"vol_size": 64}}
    campaign = campaign_of(cluster={"configurations": configurations}, benchmarks=benchmarks)
    with pytest.raises(UsageError) as refused:
        plan(campaign)
    (sentence,) = str(refused.value).splitlines()
    assert "campaign" in sentence.partition(": ")[0]
    assert (
        "cluster.configurations.Client.rbd_encryption.by: librbd encrypts for rbd_nbd" in sentence
    )


@pytest.mark.parametrize(("order", "header_mb"), [(22, 16), (26, 64)])
def test_librbd_s_volumes_are_their_own(campaign_of: Make, order: int, header_mb: int) -> None:
    """Its data begin with an object; what is plain may be shared with the kernel's client."""
    configurations = {
        "Plain": {}, "Client": {"rbd_encryption": {"by": "librbd", "key_size": 256}},
    }  # fmt: skip
    load = {"vol_size": 64, "order": order}
    campaign = campaign_of(
        cluster={"configurations": configurations, "rebuild": "needed"},
        benchmarks={
            "rbd_single_client": ..., "rbd_krbd": {**load, "configuration": "Plain"},
            "rbd_nbd": load,
        },
    )  # fmt: skip
    filled = [step for step in plan(campaign).steps if isinstance(step, Prefill)]
    volumes = {v.name: (step.scenario, v) for step in filled for v in step.volumes}
    (name,) = (name for name in volumes if name.endswith("-librbd-aes-128"))
    scenario, volume = volumes.pop(name)
    assert scenario.name == "rbd_nbd"
    assert scenario.created_mb(volume) == 64 + header_mb
    assert volume.encryption.formatting == ("--cipher-alg", "aes-128")
    assert len(volumes) == 1


def test_dm_crypt_below_a_drives_file_system_is_none_of_its_business() -> None:
    assert fault(RbdEncryption.absent(), [[crypt(), {**RBD, "name": "sda"}]]) is None


def test_a_scenario_whose_clients_cannot_is_refused(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={"configurations": {"Plain": {}, "Client": {"rbd_encryption": {}}}},
        benchmarks={"rbd_single_client": {}},
    )
    with pytest.raises(UsageError, match='rbd_single_client: the clients of "Client" are to') as no:
        plan(campaign)
    assert "cluster.configurations.Client.rbd_encryption" in str(no.value)


def test_both_kinds_of_volumes_are_on_one_cluster(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={"configurations": {"Plain": {}, "Client": {"rbd_encryption": {}}}},
        benchmarks={"rbd_single_client": ..., "rbd_krbd": {"vol_size": 64}},
    )
    steps = plan(campaign).steps
    filled = [volume for step in steps if isinstance(step, Prefill) for volume in step.volumes]
    plain, encrypted = sorted(filled, key=lambda volume: volume.name)
    assert encrypted.name.startswith(f"{plain.name}-aes-xts-plain64-512-512")
    assert plain.encryption is None
    assert encrypted.encryption is not None
    stacks = [Stack(overlays) for overlays in campaign.configurations.values()]
    assert stacks[0].transition_to(stacks[-1]) is Transition.NONE


def test_an_encrypted_image_has_room_for_its_header(campaign_of: Make) -> None:
    campaign = campaign_of(
        cluster={"configurations": {"Client": {"rbd_encryption": {"sector_size": 4096}}}},
        benchmarks={"rbd_single_client": ..., "rbd_krbd": {"vol_size": 64}},
    )
    cell = next(step.cell for step in plan(campaign).steps if hasattr(step, "cell"))
    stack = Stack(campaign.configurations["Client"])
    (volume,) = cell.scenario.volumes(cell_site(campaign.cluster, cell.scenario, stack))
    assert cell.scenario.created_mb(volume) == volume.size_mb + volume.encryption.header_mb == 80
    assert "--sector-size 4096" in " ".join(volume.encryption.formatting)


def test_cryptsetup_makes_a_header_of_that_size(formatted: tuple[VolumeEncryption, Path]) -> None:
    """The real one, on a file: its data begin where the room for the header ends."""
    encryption, image = formatted
    dump = ["cryptsetup", "luksDump", image]
    said = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    assert f"offset: {encryption.header_mb << 20} [bytes]" in said
