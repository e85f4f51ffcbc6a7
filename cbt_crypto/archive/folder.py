"""An archive on disk: its plan, and the files of a cell, none of which may lead out of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Optional

from cbt_crypto.archive.documents import (
    PLAN_LIMIT,
    AnyDocument,
    Environment,
    PlanDocument,
    parse_document,
)
from cbt_crypto.archive.problem import Malformed, Problem, of_system
from cbt_crypto.archive.safe_read import DOCUMENT_LIMIT, read_document
from cbt_crypto.errors import UsageError


@lru_cache(maxsize=16)
def _resolved(root: Path) -> Path:
    return root.resolve()


@dataclass(frozen=True)
class Folder:
    """A directory below an archive's root.

    Names come from files that someone sent, so each is checked before it is opened. `shown` is
    how it is called in problems: relative to the archive, or to a cell.
    """

    root: Path
    relative: str = ""
    shown: str = ""

    def path(self, name: str) -> Path:
        """The file of that name, relative to this folder.

        Raises Malformed for one outside of the archive, be it by `..` or by a symbolic link.
        """
        pure = PurePath(name)
        if "\0" in name or not pure.parts or ".." in pure.parts or pure.is_absolute():
            raise Malformed(f"names {name!r}, which is outside of the archive")
        path = self.root / self.relative / name
        try:
            is_plain = len(pure.parts) == 1 and not path.is_symlink()
            inside = self._is_inside if is_plain else self._holds(path)
        except OSError as error:
            raise of_system(error) from None
        except RuntimeError as error:
            raise Malformed(f"cannot be read ({error})") from None
        if not inside:
            raise Malformed("is a link out of the archive, so it was not read")
        return path

    @cached_property
    def _is_inside(self) -> bool:
        """Whether the directory itself is; a cell has hundreds of files, so it is asked once."""
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
        """What the directory held when first asked, sorted; nothing when there is none.

        Raises Malformed for one that cannot be listed.
        """
        try:
            return sorted(os.listdir(self.root / self.relative))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Malformed(f"{self.shown or 'its directory'} {of_system(error)}") from None

    def read(self, name: str, limit: int = DOCUMENT_LIMIT) -> Optional[bytes]:
        """The content of a file; None when there is none. Raises Malformed."""
        path = self.path(name)
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise of_system(error) from None
        return read_document(path, limit, _resolved(self.root))

    def document(
        self, name: str, kind: type[AnyDocument], limit: int = DOCUMENT_LIMIT
    ) -> Optional[AnyDocument]:
        """A JSON document; None when there is none. Raises Malformed that names the file."""
        try:
            data = self.read(name, limit)
            return None if data is None else parse_document(kind, data)
        except Malformed as error:
            raise Malformed(f"{self.label(name)} {error}") from None


@dataclass(frozen=True)
class Archive:
    """An archive with its plan; `environment` is None where the archive does not say."""

    folder: Folder
    plan: PlanDocument
    environment: Optional[Environment]
    problems: tuple[Problem, ...] = ()


def open_archive(root: Path) -> Archive:
    """Read the plan and the environment. Raises UsageError when this is no archive of ours."""
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such directory; name the archive of a campaign")
    folder = Folder(root)
    try:
        plan = folder.document("results/plan.json", PlanDocument, PLAN_LIMIT)
    except Malformed as error:
        raise UsageError(f"{root}: {error}") from None
    if plan is None:
        raise UsageError(_no_plan(root))
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
