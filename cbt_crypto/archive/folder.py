"""An archive on disk (docs/archive.md); no path of a cell may lead out of it."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import re
import stat
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path, PurePath
from statistics import median
from typing import Any, Optional

from cbt_crypto import units
from cbt_crypto.archive import documents, files
from cbt_crypto.archive.documents import AnyDocument, Environment, PlanDocument, PlannedCell
from cbt_crypto.archive.files import DOCUMENT_LIMIT, Malformed, Problem
from cbt_crypto.errors import UsageError


@lru_cache(maxsize=16)
def _resolved(root: Path) -> Path:
    return root.resolve()


@dataclass(frozen=True)
class Folder:
    """A directory of the archive; names are checked before use, `shown` names it in problems."""

    root: Path
    relative: str = ""
    shown: str = ""

    def path(self, name: str) -> Path:
        """The file of that name here; Malformed if `..` or a link leads out of the archive."""
        pure = PurePath(name)
        if "\0" in name or not pure.parts or ".." in pure.parts or pure.is_absolute():
            raise Malformed(f"names {name!r}, which is outside of the archive")
        path = self.root / self.relative / name
        try:
            is_plain = len(pure.parts) == 1 and not path.is_symlink()
            inside = self._is_inside if is_plain else self._holds(path)
        except OSError as error:
            raise files.of_system(error) from None
        except RuntimeError as error:
            raise Malformed(f"cannot be read ({error})") from None
        if not inside:
            raise Malformed("is a link out of the archive, so it was not read")
        return path

    @cached_property
    def _is_inside(self) -> bool:
        return self._holds(self.root / self.relative)

    def _holds(self, path: Path) -> bool:
        return path.resolve().is_relative_to(_resolved(self.root))

    def label(self, name: str) -> str:
        """The name of a file as problems show it."""
        return f"{self.shown}/{name}" if self.shown else name

    def below(self, name: str) -> Folder:
        """A directory in this one. Raises Malformed as `path` does."""
        self.path(name)
        relative = f"{self.relative}/{name}" if self.relative else name
        return replace(self, relative=relative, shown=self.label(name))

    def cell(self, path: str) -> Folder:
        """The directory of a cell, whose problems name its files relative to it."""
        return replace(self.below(path), shown="")

    @cached_property
    def names(self) -> Sequence[str]:
        """What the directory held when first asked, sorted; Malformed if it cannot be listed."""
        try:
            return sorted(os.listdir(self.root / self.relative))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Malformed(f"{self.shown or 'its directory'} {files.of_system(error)}") from None

    def read(self, name: str, limit: int = DOCUMENT_LIMIT) -> Optional[bytes]:
        """The content of a file; None when there is none. Raises Malformed."""
        path = self.path(name)
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise files.of_system(error) from None
        return files.read_document(path, limit, _resolved(self.root))

    def document(
        self, name: str, kind: type[AnyDocument], limit: int = DOCUMENT_LIMIT
    ) -> Optional[AnyDocument]:
        """A JSON document; None when there is none. Raises Malformed that names the file."""
        try:
            data = self.read(name, limit)
            return None if data is None else documents.parse_document(kind, data)
        except Malformed as error:
            raise Malformed(f"{self.label(name)} {error}") from None


@dataclass(frozen=True)
class Archive:
    """An archive with its plan; `environment` is None where the archive does not say."""

    folder: Folder
    plan: PlanDocument
    environment: Optional[Environment]
    problems: tuple[Problem, ...] = ()


#: What prints a line of its own, or a terminal obeys: no campaign's file has it in a name.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def open_archive(root: Path) -> Archive:
    """Read the plan and the environment. Raises UsageError when this is no archive of ours."""
    if not root.is_dir():
        wrong = "is no directory" if root.exists() else "there is no such directory"
        raise UsageError(f"{root}: {wrong}; name the archive of a campaign")
    folder = Folder(root)
    try:
        plan = folder.document("results/plan.json", PlanDocument, documents.PLAN_LIMIT)
    except Malformed as error:
        raise UsageError(f"{root}: {error}") from None
    if plan is None:
        raise UsageError(_no_plan(root))
    names = [plan.title, *plan.configurations, *(str(value) for _, value in plan.baseline or ())]
    of_cells = ((cell.scenario, cell.configuration, *cell.parameters) for cell in plan.cells)
    if any(map(_CONTROL.search, {*names, *chain.from_iterable(of_cells)})):
        raise UsageError(f"{root}: results/plan.json has a name that is not one line of text")
    environment, problems = _environment(folder)
    return Archive(folder, plan, environment, problems)


def _no_plan(root: Path) -> str:
    if (root / "results").is_dir():
        return (
            f"{root}: there is no results/plan.json; an archive of upstream CBT holds one"
            " configuration only, so give one for each to `cbt-crypto compare NAME=DIR ...`"
        )
    return f"{root}: there is no results/plan.json, so this is not the archive of a campaign"


def _environment(folder: Folder) -> tuple[Optional[Environment], tuple[Problem, ...]]:
    name = "results/environment.json"
    try:
        environment = folder.document(name, Environment)
    except Malformed as error:
        return None, (Problem("", str(error)),)
    if environment is None:
        return None, (Problem(name, "is missing, so nothing is known of the hosts"),)
    return environment, ()


#: Each of these lists takes a new cluster for each of its values.
CLUSTER_DIMENSIONS = ("drive", "osds_per_device", "replication")


def depth_words(options: Mapping[str, Any]) -> str:
    """`iodepth 32`, or the total where that counts; the rate behind it where there is one."""
    total = options.get("total_iodepth")
    depth = f"iodepth {options['iodepth']}" if total is None else f"total_iodepth {total}"
    rate, data = options.get("rate", "max"), options.get("data_pool_profile")
    depth = depth if data is None else f"{depth} data_pool {data}"
    return depth if rate == "max" else f"{depth} rate {rate}"


def label_of(cell: PlannedCell) -> str:
    """The label of a cell in an archive's plan."""
    return label(cell.scenario, cell.configuration, cell.parameters, cell.iteration)


def label(scenario: str, configuration: str, options: Mapping[str, Any], iteration: int) -> str:
    """`rbd_single_client / LUKS / randread 4K iodepth 32`, and from the second on the round."""
    words = [str(options.get("mode", ""))]
    words += [units.short_size(options["op_size"])] if "op_size" in options else []
    words += [depth_words(options)] if "iodepth" in options else []
    words += [f"{key} {options[key]}" for key in CLUSTER_DIMENSIONS if key in options]
    words += [f"round {iteration + 1}"] if iteration else []
    return f"{scenario} / {configuration} / {' '.join(words)}"


def matches(text: str, pattern: str) -> bool:
    """Whether a label contains a pattern of `--only`, in which `*` is any text; in any case."""
    text, pattern = text.lower(), pattern.lower()
    return pattern in text or fnmatch.fnmatchcase(text, f"*{pattern}*")


def _path(archive: Path) -> Path:
    return archive / "results" / "timeline.json"


class Timeline:
    """Notes steps that were taken to their end; a campaign that goes on adds to what is there."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive

    @contextlib.contextmanager
    def step(self, kind: str, **about: Any) -> Iterator[None]:
        """Note how long the block takes; `kind` is deploy, prefill, measure or take_down."""
        started, clock = time.time(), time.monotonic()
        yield
        taken = round(time.monotonic() - clock, 3)
        _append(_path(self._archive), {"step": kind, **about, "started": started, "seconds": taken})


#: How timeline.json ends behind its last step.
_CLOSING = b"\n ]\n}\n"


def _append(path: Path, step: Mapping[str, Any]) -> None:
    """Add a step at the end of the document; one that does not end as ours do is written anew."""
    text = textwrap.indent(json.dumps(step, indent=1), "  ")
    if not _appended(path, f",\n{text}".encode() + _CLOSING):
        files.write_json(path, {"steps": [*steps_of(path.parent.parent), step]})


def _appended(path: Path, data: bytes) -> bool:
    """Replace the closing of the file's list by `data`; False for a file without such an end."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        end = status.st_size - len(_CLOSING)
        is_own = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_own or end < 0 or os.pread(descriptor, len(_CLOSING), end) != _CLOSING:
            return False
        # In one call: a reader finds the document without the step, or with it.
        written = os.pwrite(descriptor, data, end)
        if written < len(data):
            os.ftruncate(descriptor, end)
            os.pwrite(descriptor, _CLOSING, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
    return True


#: The numbers of a step, and the most of each: ten years, as in documents; an exabyte.
_NUMBERS = {"seconds": 3.2e8, "seconds_measured": 3.2e8, "seconds_ramp": 3.2e8, "mib": 1e12}


def steps_of(archive: Path) -> list[dict[str, Any]]:
    """Return the steps in an archive's timeline.json whose numbers are numbers."""
    steps = (files.read_json(_path(archive)) or {}).get("steps")
    found = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return [step for step in found if _is_step(step)]


def _is_step(step: Mapping[str, Any]) -> bool:
    numbers = [(step.get(key) or 0, most) for key, most in _NUMBERS.items()]
    return all(isinstance(number, (int, float)) and 0 <= number < most for number, most in numbers)


def beyond_the_file(step: Mapping[str, Any]) -> float:
    """Seconds that a step took beyond what the file itself asks for: ramp and measured time."""
    seconds = float(step.get("seconds") or 0)
    return seconds - sum(float(step.get(key) or 0) for key in ("seconds_measured", "seconds_ramp"))


def usual_fill_rate(steps: list[dict[str, Any]]) -> Optional[float]:
    """MiB/s at which volumes were filled; of small ones that is mostly what goes before it."""
    filled = (step for step in steps if step.get("step") == "prefill" and step.get("mib"))
    rates = [step["mib"] / step["seconds"] for step in filled if step.get("seconds")]
    # What takes an age for nothing is no rate: its square is no number.
    return max(float(median(rates)), 0.001) if rates else None


def usual_seconds(steps: list[dict[str, Any]], kind: str, **about: Any) -> Optional[float]:
    """Median seconds of the steps of that kind and with those values; None without any."""
    wanted = {"step": kind, **about}.items()
    alike = (step for step in steps if all(step.get(key) == value for key, value in wanted))
    seconds = [step["seconds"] for step in alike if isinstance(step.get("seconds"), (int, float))]
    return float(median(seconds)) if seconds else None
