"""The scenarios; a new one is a module and a line in this table."""

from __future__ import annotations

from cbt_crypto.benchmarks import upstream
from cbt_crypto.benchmarks.base import Scenario
from cbt_crypto.benchmarks.drive import RawDevice
from cbt_crypto.benchmarks.etcd import Etcd, Fdatasync
from cbt_crypto.benchmarks.rbd import (
    RbdKbench,
    RbdKrbd,
    RbdMultiClient,
    RbdNbd,
    RbdSingleClient,
    RbdSingleClientSync,
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
        RbdNbd,
        RawDevice,
        Fdatasync,
        Etcd,
        upstream.Librbdfio,
        upstream.Radosbench,
        upstream.Fio,
        upstream.Rawfio,
        upstream.Rbdfio,
        upstream.Kvmrbdfio,
        upstream.Hsbench,
        upstream.Getput,
        upstream.Elbencho,
        upstream.Cosbench,
    )
}
