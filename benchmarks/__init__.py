"""The scenarios; a new one is a module and a line in this table."""

from __future__ import annotations

from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.benchmarks.drive import RawDevice
from cbt_crypto.benchmarks.etcd import Etcd, Fdatasync
from cbt_crypto.benchmarks.rbd import (
    RbdKbench,
    RbdKrbd,
    RbdMultiClient,
    RbdSingleClient,
    RbdSingleClientSync,
)
from cbt_crypto.benchmarks.upstream import (
    Cosbench,
    Elbencho,
    Fio,
    Getput,
    Hsbench,
    Kvmrbdfio,
    Librbdfio,
    Radosbench,
    Rawfio,
    Rbdfio,
)

#: Section name in the YAML file -> scenario.
SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario
    for scenario in (
        RbdMultiClient,
        RbdSingleClient,
        RbdSingleClientSync,
        RbdKbench,
        RbdKrbd,
        RawDevice,
        Fdatasync,
        Etcd,
        Librbdfio,
        Radosbench,
        Fio,
        Rawfio,
        Rbdfio,
        Kvmrbdfio,
        Hsbench,
        Getput,
        Elbencho,
        Cosbench,
    )
}
