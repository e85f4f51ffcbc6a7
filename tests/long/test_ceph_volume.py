"""One OSD by the real `ceph-volume lvm create --dmcrypt`, one by the overlay: the same below both.

In a virtual machine with two flash disks and Ceph's packages. A monitor without an OSD is all that
ceph-volume asks of a cluster.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any, Callable

import pytest
from real_labs import running_lab

from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.hosts.devices import destroy, storage_on_host
from cbt_crypto.hosts.shell import definitions, python
from cbt_crypto.hosts.site import Osd, Site
from cbt_crypto.lab import access
from cbt_crypto.lab.shape import Kind, Release, Shape
from cbt_crypto.run import devices

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]

MIB = 1 << 20
HOST = "node0"
DIR = "/tmp/ceph-volume-test"
LIKE = Luks(like="ceph-volume")

Shell = Callable[[str], str]

# ceph-volume takes whole disks and no partitions without a PARTUUID of their own kind.
CLUSTER = """
mkdir -p /etc/ceph /var/lib/ceph/bootstrap-osd /var/lib/ceph/mon /run/ceph /var/lib/ceph/osd
fsid=$(cat /proc/sys/kernel/random/uuid)
address=$(hostname -I | cut -d ' ' -f 1)
cat > /etc/ceph/ceph.conf <<END
[global]
fsid = $fsid
mon_host = [v2:$address:3300]
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
ms_bind_msgr1 = false
osd_pool_default_size = 1
END
admin=/etc/ceph/ceph.client.admin.keyring
bootstrap=/var/lib/ceph/bootstrap-osd/ceph.keyring
ceph-authtool -C /tmp/mon.keyring --gen-key -n mon. --cap mon 'allow *'
ceph-authtool -C $admin --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
ceph-authtool -C $bootstrap --gen-key -n client.bootstrap-osd --cap mon 'profile bootstrap-osd'
ceph-authtool /tmp/mon.keyring --import-keyring $admin
ceph-authtool /tmp/mon.keyring --import-keyring $bootstrap
monmaptool --create --clobber --fsid $fsid --addv a "[v2:$address:3300]" /tmp/monmap
ceph-mon --mkfs -i a --monmap /tmp/monmap --keyring /tmp/mon.keyring --mon-data /var/lib/ceph/mon/a
ceph-mon -i a --mon-data /var/lib/ceph/mon/a
timeout 120 ceph -s
"""


@pytest.fixture(scope="module", params=list(Release), ids=lambda release: release.value)
def sh(request: pytest.FixtureRequest) -> Iterator[Shell]:
    """Runs shell text on the machine; one of Debian 13, and one of its next."""
    shape = Shape(
        kind=Kind.VM, ceph=request.param, nodes=1, disks=2,
        disk_size=1024 * MIB, memory=2048 * MIB, cpus=2,
    )  # fmt: skip
    name = f"ceph-volume-{request.param.value}"
    with running_lab(name, shape) as lab:
        yield lambda text: access.run(lab, lab.head, f"set -eu\nSUDO=\n(\n{text}\n)")


def _osd(number: int, device: str) -> Osd:
    data_dir = f"{DIR}/osd.{number}"
    return Osd(number, HOST, device, data_dir, f"{data_dir}.asok", f"{data_dir}.pid")


def _site(osd: Osd) -> Site:
    return Site(tmp_dir=DIR, conf=f"{DIR}/ceph.conf", head=HOST, clients=(HOST,), osds=(osd,))


def _claim(sh: Shell, osd: Osd) -> None:
    """What a campaign does first: it looks at the device, notes it, and takes it as its own."""
    paths = list(osd.devices)
    looked = json.loads(sh(destroy.identify(DIR, paths)))
    notes = {
        path: {"identity": identity, "uuid": str(uuid.uuid4()), "wipe": False}
        for path, identity in looked.items()
    }
    sh(devices.recording(DIR, {HOST: notes})[HOST])
    sh(destroy.claim(DIR, paths))


@pytest.fixture(scope="module")
def disks(sh: Shell) -> list[str]:
    """Two whole disks without a partition; the lab has said that they are flash."""
    found = sh(
        "cd /dev/disk/by-id; for disk in virtio-osd-device-[01]; do disk=$(readlink -f $disk)\n"
        "wipefs -q -a -f ${disk}1; wipefs -q -a -f $disk; partx -d $disk 2>/dev/null || :\n"
        # Else what a partition table leaves behind is somebody's data.
        "blkdiscard -f -z $disk; echo $disk; done"
    )
    return found.split()


@pytest.fixture(scope="module")
def by_ceph_volume(sh: Shell, disks: list[str]) -> str:
    """The mapping that ceph-volume opened."""
    sh(CLUSTER)
    said = sh(f"ceph-volume lvm prepare --bluestore --dmcrypt --data {disks[0]} 2>&1 | tail -n 40")
    names = sh("dmsetup ls --target crypt | cut -f 1").split()
    assert len(names) == 1, said
    return names[0]


@pytest.fixture(scope="module")
def by_us(sh: Shell, disks: list[str], by_ceph_volume: str) -> Iterator[str]:
    """The mapping that the overlay opened, held open in place of an OSD."""
    osd = _osd(1, disks[1])
    site = _site(osd)
    sh(f"mkdir -p {DIR}")
    _claim(sh, osd)
    sh(LIKE.before_osds(site)[HOST])
    path = LIKE.osd_device(osd, osd.device)
    sh(
        f"setsid sh -c 'exec 5<> {path}; exec sleep infinity < /dev/null > /dev/null 2>&1' & "
        f"echo $! > {osd.pid_file}; sleep 0.5"
    )
    looks = [{HOST: sh(LIKE.probe(site)[HOST])} for _ in range(2)]
    verdict = LIKE.judge(site, *looks)
    assert verdict.proved, verdict.reason
    yield path.removeprefix("/dev/mapper/")
    sh(f"kill $(cat {osd.pid_file})")
    sh(LIKE.take_down(site)[HOST])
    left = sh(f"dmsetup ls --target crypt; vgs --noheadings -o vg_name; wipefs {disks[1]}")
    assert "cbt-crypto" not in left
    assert "LUKS" not in left


def _layers(sh: Shell, name: str) -> list[dict[str, Any]]:
    """The storage below a mapping, by the same reading that the proof has."""
    source = definitions(storage_on_host)
    ask = "print(json.dumps(Layers().below(number_at(json.loads(sys.argv[1])))))"
    layers: list[dict[str, Any]] = json.loads(sh(python(source + ask, f"/dev/mapper/{name}")))
    return layers


def _kind(layer: dict[str, Any]) -> list[str]:
    """What a layer is, without what is its own: numbers, names, sizes and keys."""
    table = (layer.get("table") or "").split()
    kind = str(layer.get("uuid", "disk")).split("-")[0]
    if "crypt" in table:
        return [kind, *table[2:4], table[4].split(":")[1], *table[7:]]
    return [kind, *table[2:3]]


def test_the_layers_and_tables_are_alike(sh: Shell, by_ceph_volume: str, by_us: str) -> None:
    theirs, ours = (_layers(sh, name) for name in (by_ceph_volume, by_us))
    print(json.dumps({"ceph-volume": theirs, "overlay": ours}, indent=1))
    assert [_kind(layer) for layer in theirs] == [_kind(layer) for layer in ours]
    assert [kind[0] for kind in map(_kind, ours)] == ["CRYPT", "LVM", "disk"]


def test_the_headers_are_alike(sh: Shell, by_ceph_volume: str, by_us: str) -> None:
    """All that luksDump says of the data; of the key slot its cipher, not what opening it costs."""
    dumps = []
    for name in (by_ceph_volume, by_us):
        device = sh(f"cryptsetup status {name} | sed -n 's/^ *device: *//p'").strip()
        dumps.append(sh(f"cryptsetup luksDump {device}"))
    print("\n".join(dumps))
    assert _of_data(dumps[0]) == _of_data(dumps[1])


def test_high_priority_where_cryptsetup_knows_it(sh: Shell, by_us: str) -> None:
    """The requirement answers as cryptsetup and the kernel do when they are asked to do it."""
    (need,) = Luks(high_priority=True).requirements(_site(_osd(1, "/dev/null")))
    refused = need.judge(sh(need.script))
    done = sh(
        f"cryptsetup refresh --perf-high_priority --key-file /run/cbt-crypto/{by_us} {by_us} "
        f"2>&1 && dmsetup table {by_us} || echo refused"
    )
    assert ("high_priority" in done.split()) == (refused is None), (done, refused)


def _of_data(dump: str) -> dict[str, Any]:
    head, _, rest = dump.partition("Data segments:")
    segment, _, slots = rest.partition("Keyslots:")
    named = {
        key: re.findall(rf"^\s*{key}:\s*(.*)$", text, re.MULTILINE)
        for text, key in (
            (head, "Version"),
            (head, "Flags"),
            (slots, "Cipher"),
            (slots, "Cipher key"),
            (slots, "Key"),
        )
    }
    return {**named, "segment": [line.strip() for line in segment.splitlines() if line.strip()]}
