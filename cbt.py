#!/usr/bin/env python3
"""The command people type. Uses the checkout's own environment where `make` has made one."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
#: What every run imports, though not before it is needed.
NEEDED = ("click", "psutil", "pydantic", "rich", "typing_extensions", "yaml")


def main() -> None:
    """Run the campaign command, in .venv when this interpreter lacks what it needs."""
    # A folder beside this file must not hide an installed package of the same name.
    sys.path[0] = str(HERE)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        python = VENV / "bin" / "python"
        if not python.exists() or Path(sys.prefix).resolve() == VENV.resolve():
            sys.exit(f"Python has no {missing[0]}; run `make venv`, or `pip install .`")
        os.execv(str(python), [str(python), __file__, *sys.argv[1:]])
    from cbt_crypto.main import cbt  # noqa: PLC0415

    cbt(prog_name="cbt.py")


if __name__ == "__main__":
    main()
