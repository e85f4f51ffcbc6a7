"""Archives of any size with known figures, in the layout of docs/archive.md.

The tests take small ones, whose every figure is known, and `perf/report_speed` takes one of a
published campaign's size.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
from synthetic_files import (
    DIRECTION,
    average_log,
    collectl_raw,
    energy_samples,
    fio_json,
    histogram_log,
    latency_bins,
)


@dataclass(frozen=True)
class Load:
    """What one client process does in one cell: its IOPS, and its latency in ms."""

    iops: float
    latency_ms: float
    #: Standard deviation of the IOPS of one second, in percent.
    noise_percent: float = 2.0


@dataclass(frozen=True)
class SyntheticScenario:
    """Client processes of one scenario and what is varied in it."""

    name: str
    clients: int = 1
    processes_per_client: int = 1
    op_sizes: Sequence[int] = (4 << 20, 4096)
    modes: Sequence[str] = ("randread", "randwrite")
    iodepth: int = 128
    #: More parameters of its cells, such as the drive that it works on.
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SyntheticCell:
    """The dimensions of one cell."""

    scenario: SyntheticScenario
    configuration: str
    op_size: int
    mode: str
    iteration: int


#: What a process of a cell does.
LoadOf = Callable[[SyntheticCell], Load]
#: CPU percent by state of the OSD nodes in a cell.
CpuOf = Callable[[SyntheticCell], Mapping[str, float]]


@dataclass(frozen=True)
class SyntheticCampaign:
    """A whole archive. The first configuration is the baseline."""

    scenarios: Sequence[SyntheticScenario]
    configurations: Sequence[str]
    load: LoadOf
    cpu: CpuOf = field(default=lambda cell: {"user": 20.0, "sys": 10.0, "softirq": 1.0})
    #: Power of each OSD node in W, by its RAPL counters; None for machines without any.
    watts: Optional[Callable[[SyntheticCell], float]] = None
    seconds: int = 20
    ramp: int = 2
    iterations: int = 1
    osd_hosts: int = 1
    threads: int = 8
    processes_per_host: int = 20
    emulated: bool = False
    #: All cells at the same time of day, so that equal files are written once and linked.
    at_once: bool = False
    seed: int = 1
    #: Iterations as rounds, each of every configuration on a deployment of its own.
    rounds: bool = False


def write_archive(campaign: SyntheticCampaign, root: Path) -> Path:
    """Write `campaign` below `root`, which must not hold one yet; return `root`."""
    writer = _Writer(campaign, root)
    cells = list(_cells(campaign))
    planned = [writer.write_cell(cell, number) for number, cell in enumerate(cells)]
    results = root / "results"
    _write_json(
        results / "plan.json",
        {
            "format": 1,
            "title": "synthetic",
            "baseline": {"dimension": "configuration", "value": campaign.configurations[0]},
            # A campaign writes what its file has, which is all but the control.
            "configurations": {n: {} for n in campaign.configurations if n != "control"},
            "cells": planned,
        },
    )
    hosts = {name: ["clients"] for name in writer.clients} | {n: ["osds"] for n in writer.osds}
    _write_json(
        results / "environment.json",
        {
            "format": 1,
            "started": 1.7e9,
            "engine": {"name": "embedded", "version": "0.1.0", "commit": None},
            "commit": None,
            "ceph_conf": {name: "[global]\n" for name in campaign.configurations},
            "hosts": {
                name: {"roles": roles, "emulated": campaign.emulated, "threads": campaign.threads}
                for name, roles in hosts.items()
            },
        },
    )
    return root


def _cells(campaign: SyntheticCampaign) -> list[SyntheticCell]:
    cells = _one_by_one(campaign)
    return sorted(cells, key=lambda cell: cell.iteration) if campaign.rounds else cells


def _one_by_one(campaign: SyntheticCampaign) -> list[SyntheticCell]:
    return [
        SyntheticCell(scenario, configuration, op_size, mode, iteration)
        for configuration in campaign.configurations
        for scenario in campaign.scenarios
        for iteration in range(campaign.iterations)
        for op_size in scenario.op_sizes
        for mode in scenario.modes
    ]


class _Writer:
    def __init__(self, campaign: SyntheticCampaign, root: Path) -> None:
        self.campaign = campaign
        self.root = root
        self.clients = [f"client{n}" for n in range(max(s.clients for s in campaign.scenarios))]
        self.osds = [f"osd{n}" for n in range(campaign.osd_hosts)]
        self._random = np.random.default_rng(campaign.seed)
        self._written: dict[tuple[Any, ...], Path] = {}

    def write_cell(self, cell: SyntheticCell, number: int) -> dict[str, Any]:
        """Write the files of one cell; return its entry in the plan."""
        campaign, scenario = self.campaign, cell.scenario
        name = f"id-{number:08x}"
        path = f"results/{cell.iteration:08d}/{name}"
        folder = self.root / path
        folder.mkdir(parents=True)
        length = campaign.ramp + campaign.seconds
        begun = 1_700_000_000 + (0 if campaign.at_once else number * (length + 10))
        start = begun + campaign.ramp
        load = campaign.load(cell)
        clients = self.clients[: scenario.clients]
        processes = [
            self._process(folder, cell, load, str(volume), host, start)
            for host in clients
            for volume in range(scenario.processes_per_client)
        ]
        for host in (*self.osds, *clients):
            self._collectl(folder, cell, host, begun, length)
        if campaign.watts is not None:
            for host in self.osds:
                text = energy_samples(campaign.watts(cell), begun, length)
                (folder / f"energy.{host}").write_text(text)
        self._documents(folder, cell, begun, begun + length, processes)
        return {**self._identity(name, cell), "path": path}

    def _identity(self, name: str, cell: SyntheticCell) -> dict[str, Any]:
        campaign, scenario = self.campaign, cell.scenario
        return {
            "id": name,
            "iteration": cell.iteration,
            "scenario": scenario.name,
            "configuration": cell.configuration,
            "parameters": {
                "op_size": cell.op_size,
                "mode": cell.mode,
                "iodepth": scenario.iodepth,
                **scenario.parameters,
                "time": campaign.seconds,
                "ramp": campaign.ramp,
            },
        }

    def _documents(
        self, folder: Path, cell: SyntheticCell, begun: int, ended: int, processes: list[Any]
    ) -> None:
        by_round = f"{cell.iteration}-{cell.configuration}" if self.campaign.rounds else None
        _write_json(
            folder / "cell.json",
            {
                "format": 1,
                **self._identity(folder.name, cell),
                "definition": "synthetic",
                "state": "finished",
                "reason": None,
                "started": float(begun),
                "ended": float(ended),
                "clients": self.clients[: cell.scenario.clients],
                "osd_hosts": self.osds,
                "clock_offset_s": {},
                "processes": processes,
                "deployment": by_round,
            },
        )
        _write_json(
            folder / "proof.json",
            {"format": 1, "configuration": cell.configuration, "proved": True, "overlays": []},
        )

    def _process(
        self, folder: Path, cell: SyntheticCell, load: Load, volume: str, host: str, start: int
    ) -> dict[str, Any]:
        self._client(folder, cell, load, volume, host, start)
        return {
            "host": host,
            "volume": volume,
            "exit_status": 0,
            "json": f"json_output.{volume}.{host}",
            "logs": f"output.{volume}",
        }

    def _client(
        self, folder: Path, cell: SyntheticCell, load: Load, volume: str, host: str, start: int
    ) -> None:
        seconds, direction = self.campaign.seconds, DIRECTION[cell.mode]
        rates = self._random.normal(load.iops, load.iops * load.noise_percent / 100, seconds)
        rates = np.maximum(rates, 0)
        rates *= load.iops / rates.mean()
        times = (start + 1 + np.arange(seconds)) * 1000
        latency = load.latency_ms * 1e6 * load.iops / np.maximum(rates, load.iops / 100)
        bins = latency_bins(load.latency_ms, round(load.iops * seconds))
        output = fio_json(cell.mode, cell.op_size, load.iops, seconds, start, bins)
        (folder / f"json_output.{volume}.{host}").write_text(output)
        (folder / f"output.{volume}.{host}").write_text("")
        kinds = {"bw": rates * cell.op_size / 1024, "iops": rates, "clat": latency, "lat": latency}
        for kind, values in kinds.items():
            text = average_log(times, values, direction)
            (folder / f"output.{volume}_{kind}.1.log.{host}").write_text(text)
        key = ("hist", load, direction, start)
        target = folder / f"output.{volume}_clat_hist.1.log.{host}"
        self._once(key, target, lambda: histogram_log(times, bins, direction, cell.op_size))

    def _collectl(
        self, folder: Path, cell: SyntheticCell, host: str, begun: int, length: int
    ) -> None:
        directory = folder / f"collectl.{host}"
        directory.mkdir()
        states = dict(self.campaign.cpu(cell))
        key = ("collectl", tuple(sorted(states.items())), begun)
        target = directory / f"{host}-20231114-000000.raw.gz"
        self._once(key, target, lambda: self._raw(states, begun, length))

    def _raw(self, states: Mapping[str, float], begun: int, length: int) -> bytes:
        text = collectl_raw(
            states, begun, length, self.campaign.threads, self.campaign.processes_per_host
        )
        # a daemon that a signal ended leaves no trailer
        return gzip.compress(text, 6, mtime=0)[:-8]

    def _once(self, key: tuple[Any, ...], target: Path, make: Callable[[], bytes]) -> None:
        if key in self._written:
            os.link(self._written[key], target)
            return
        target.write_bytes(make())
        if self.campaign.at_once:
            self._written[key] = target


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")
