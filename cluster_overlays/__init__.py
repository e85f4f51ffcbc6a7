"""The overlays by their names in the file, whose order counts; absent ones come in this order."""

from __future__ import annotations

from cbt_crypto.cluster_overlays.base import Overlay
from cbt_crypto.cluster_overlays.ceph_build import CephBuild
from cbt_crypto.cluster_overlays.ceph_options import CephOptions
from cbt_crypto.cluster_overlays.cpuset import CpuSet
from cbt_crypto.cluster_overlays.db_device import DbDevice
from cbt_crypto.cluster_overlays.luks.overlay import Luks
from cbt_crypto.cluster_overlays.network import Network
from cbt_crypto.cluster_overlays.osd_service import OsdService
from cbt_crypto.cluster_overlays.pools import Pools
from cbt_crypto.cluster_overlays.rbd_encryption import RbdEncryption
from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.cluster_overlays.tuned import Tuned

OVERLAYS: dict[str, type[Overlay]] = {
    "ceph_build": CephBuild,
    "network": Network,
    "db_device": DbDevice,
    "luks": Luks,
    "secure_messenger": SecureMessenger,
    "cpuset": CpuSet,
    "osd_service": OsdService,
    "tuned": Tuned,
    "rbd_encryption": RbdEncryption,
    "ceph_options": CephOptions,
    "pools": Pools,
}
