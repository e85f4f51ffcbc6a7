"""The scenarios; a new one is a module and a line in this table."""

from __future__ import annotations

from cbt_crypto.benchmarks import drive, etcd, rbd, upstream
from cbt_crypto.benchmarks.base import Scenario

#: Section name in the YAML file -> scenario.
SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario
    for scenario in (
        rbd.RbdMultiClient,
        rbd.RbdSingleClient,
        rbd.RbdSingleClientSync,
        rbd.RbdKbench,
        rbd.RbdKrbd,
        rbd.RbdNbd,
        drive.RawDevice,
        etcd.Fdatasync,
        etcd.Etcd,
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
