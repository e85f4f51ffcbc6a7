"""For the site: pages link to files of the repository, which are put into it under `source/`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add what pages link to outside of docs/."""
    docs = Path(config["docs_dir"])
    linked = {
        match[1].rstrip("/")
        for page in sorted(docs.glob("*.md"))
        for match in _OUTSIDE.finditer(page.read_text(encoding="utf-8"))
    }
    for name in sorted(linked):
        path = docs.parent / name
        if path.is_file():
            # A .md would become a page, whose own links lead nowhere from here.
            text = path.read_text(encoding="utf-8")
            files.append(File.generated(config, f"source/{_shown(name)}", content=text))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Lead these links there; a directory is named without one."""
    root = Path(config["docs_dir"]).parent

    def there(match: re.Match[str]) -> str:
        name = match[1].rstrip("/")
        return f"](source/{_shown(name)})" if (root / name).is_file() else "](architecture.md)"

    return _OUTSIDE.sub(there, markdown)


def _shown(name: str) -> str:
    return f"{name}.txt"
