"""Pools that a configuration makes by another profile: their code, compression, and PG counts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Optional

from pydantic import ConfigDict, PrivateAttr, model_validator
from typing_extensions import Self, override

from cbt_crypto.cluster_overlays.base import Overlay, Transition, Verdict
from cbt_crypto.hosts import shell
from cbt_crypto.hosts.site import HostOutputs, HostScripts, Site

#: What is to be true of a pool: see `fault`.
State = Mapping[str, Any]
_PGS = "@pools"
#: Flag of a pool -> what is said where it is not as wanted, by whether it is there.
_FLAGS = {
    "ec_overwrites": ("it cannot be overwritten", "it can be overwritten"),
    "ec_optimizations": ("it has no EC optimizations", "it has EC optimizations"),
}


def fault(state: State, name: str, dump: Mapping[str, Any]) -> Optional[str]:
    """What contradicts `state` in `ceph osd dump`, a clause; None where nothing does.

    `state` has keys of the dump's pools, the pool's `options` and `flags`, and in `code` the keys
    of its erasure-code profile: empty for a replicated pool.
    """
    pool = next((one for one in dump["pools"] if one["pool_name"] == name), None)
    if pool is None:
        return "the cluster has no such pool"
    used = pool.get("erasure_code_profile", "")
    code = dump.get("erasure_code_profiles", {}).get(used, {})
    pairs = [(key, pool.get(key), state[key]) for key in state
             if key not in ("code", "flags", "options")]  # fmt: skip
    pairs += [(key, code.get(key), value) for key, value in state["code"].items()]
    options = {**pool.get("options", {})}
    pairs += [(key, options.get(key), state["options"].get(key))
              for key in ("compression_mode", "compression_algorithm")]  # fmt: skip
    for key, found, wanted in pairs:
        if str(found) != str(wanted):
            return f"its {key} is {found} and not {wanted}"
    flags = pool.get("flags_names", "").split(",")
    for flag, (lacking, unwanted) in _FLAGS.items():
        if (flag in flags) != (flag in state["flags"]):
            return lacking if flag in state["flags"] else unwanted
    unit = state["code"].get("stripe_unit")
    if unit and pool.get("stripe_width") != unit * state["code"]["k"]:
        found = pool.get("stripe_width")
        return f"its stripes have {found} bytes and not {state['code']['k']} times {unit}"
    return None


class Pools(Overlay):
    """Make pools by other profiles: keys and values are names from cluster.pool_profiles."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, str]

    name: ClassVar[str] = "pools"

    #: Pool -> what is to be true of it, of every pool that any configuration names.
    _states: Mapping[str, State] = PrivateAttr(default={})

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if not self.chosen:
            raise ValueError("is empty; give a pool, and the profile that makes it")
        return self

    @property
    def chosen(self) -> Mapping[str, str]:
        """Pool -> the profile that makes it."""
        return self.__pydantic_extra__ or {}

    def proving(self, states: Mapping[str, State]) -> Self:
        """The overlay with what is to be true of each pool."""
        stated = self.model_copy()
        stated._states = states
        return stated

    @override
    def pool_profile(self, name: str) -> str:
        return self.chosen.get(name, name)

    @override
    def transition_to(self, new: Self) -> Transition:
        return Transition.NONE if self.chosen == new.chosen else Transition.REBUILD

    @override
    def probe(self, site: Site) -> HostScripts:
        if not self._states:
            return {}
        asked = [f"{site.ceph_command} osd dump --format json"]
        for name in self._states:
            pgs = f"{site.ceph_command} pg ls-by-pool {shlex.quote(name)} --format json"
            asked.append(shell.section(_PGS, f"{pgs} 2> /dev/null || :"))
        return {site.head: "\n".join(asked)}

    @override
    def judge(self, site: Site, before: HostOutputs, after: HostOutputs) -> Verdict:
        if not self._states:
            return Verdict(True, "no configuration makes pools by another profile")
        try:
            looks = [_read(output[site.head], self._states) for output in (before, after)]
            wrong = next(self._wrong(looks), None)
        except (KeyError, ValueError, TypeError, AttributeError):
            return Verdict(False, "the monitors did not say which pools there are")
        claims = (f"{name} {_words(self._states[name])}, {looks[1][1][name]['objects']} objects"
                  for name in self._states if name in looks[1][1])  # fmt: skip
        return Verdict(wrong is None, wrong or "; ".join(claims), looks[1][1])

    def _wrong(self, looks: Sequence[tuple[Any, Mapping[str, Any]]]) -> Iterator[str]:
        """A sentence for each pool that is not as wanted, or was changed meanwhile."""
        for dump, placed in looks:
            for name, state in self._states.items():
                found = fault(state, name, dump) or placed[name]["fault"]
                if found:
                    yield f"pool {name}: {found}"
        changes = [{pool["pool_name"]: pool.get("last_change") for pool in dump["pools"]}
                   for dump, _ in looks]  # fmt: skip
        for name in self._states:
            if changes[0].get(name) != changes[1].get(name):
                yield f"pool {name}: it was changed while the cell ran"
            # Before the cell a manager may not have heard of them yet.
            if not looks[1][1][name]["objects"]:
                yield f"pool {name}: it holds no objects"


def _read(output: str, states: Mapping[str, State]) -> tuple[Any, dict[str, Any]]:
    dumped, *parts = output.split(_PGS)
    placed = {}
    for (name, state), part in zip(states.items(), parts):
        listed = json.loads(part or "{}") if part.strip() else {}
        pgs = [pg for pg in listed.get("pg_stats", ()) if pg["stat_sum"]["num_objects"]]
        places = {len({osd for osd in pg["acting"] if 0 <= osd < 1 << 30}) for pg in pgs}
        wrong = None if places <= {state["size"]} else (
            f"objects are on {min(places)} OSDs and not on {state['size']}"
        )  # fmt: skip
        objects = sum(pg["stat_sum"]["num_objects"] for pg in pgs)
        placed[name] = {"objects": objects, "pgs": len(pgs), "fault": wrong}
    return json.loads(dumped), placed


def _words(state: State) -> str:
    code = state["code"]
    kind = f"has {state['size']} replicas"
    if code:
        kind = f"is coded {code['k']}+{code['m']} by {code['plugin']}"
    words = [kind, *(f"{key} {value}" for key, value in state["options"].items())]
    return ", ".join([*words, f"{state['pg_num']} PGs"] if "pg_num" in state else words)
