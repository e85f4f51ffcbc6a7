"""Which engine runs the campaign: an upstream CBT checkout that was named or found, or our own."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from cbt_crypto.archive.files import one_line, read_json
from cbt_crypto.engine.contract import Engine
from cbt_crypto.engine.upstream.checkout import find
from cbt_crypto.errors import UsageError

#: Beside which `../cbt` is looked for: the project's checkout, where this is one.
PROJECT = Path(__file__).resolve().parents[2]


def choose(checkout: Optional[Path]) -> Engine:
    """The engine for `--cbt DIR`; for None `$CBT_HOME`'s, `../cbt`'s, else the embedded one.

    Raises UsageError when what was named is no checkout, or cannot be imported.
    """
    directory = find(checkout, PROJECT, Path.cwd())
    if directory is None:
        return embedded()
    from cbt_crypto.engine.upstream.engine import upstream  # noqa: PLC0415 - loaded when chosen

    return upstream(directory)


def embedded() -> Engine:
    """Return the engine that comes with this package."""
    # Engines are loaded when they are chosen.
    from cbt_crypto import __version__  # noqa: PLC0415
    from cbt_crypto.engine.embedded import ceph, common, monitoring, settings  # noqa: PLC0415

    return Engine(
        "embedded", __version__, None, settings, common, monitoring, ceph.Ceph, ceph.ExistingCeph,
        common.Benchmark,
    )  # fmt: skip


def check_same_engine(archive: Path, engine: Engine) -> None:
    """Raise UsageError when the archive's cells were measured with another engine."""
    noted = (read_json(archive / "results" / "environment.json") or {}).get("engine")
    this: dict[str, object] = {"name": engine.name, "commit": engine.commit}
    if isinstance(noted, dict) and this != {key: noted.get(key) for key in this}:
        raise UsageError(
            f"{archive}: was measured with {_shown(noted)}, and this is {_shown(this)}; use that "
            "one, or name a new directory with -a"
        )


def _shown(engine: dict[str, object]) -> str:
    commit = f" at {str(engine['commit'])[:12]}" if engine.get("commit") else ""
    return one_line(f"the {engine.get('name')} engine{commit}")
