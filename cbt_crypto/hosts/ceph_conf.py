"""ceph.conf as sections of options, read from people's files and written for the daemons."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path

from cbt_crypto.errors import UsageError

Sections = dict[str, dict[str, str]]


def normal_name(option: str) -> str:
    """Ceph takes `ms client mode`, `ms-client-mode` and `ms_client_mode` for the same option."""
    return "_".join(option.replace("-", " ").replace("_", " ").split())


def read(path: Path) -> Sections:
    """Read a ceph.conf. Raises UsageError naming the file and the line where it cannot be."""
    parser = configparser.RawConfigParser(
        strict=False, interpolation=None, inline_comment_prefixes=("#", ";"), allow_no_value=False,
        delimiters=("=",), default_section="",
    )  # fmt: skip
    parser.optionxform = normal_name  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(_unfolded(path.read_text(encoding="utf-8")), source=str(path))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such ceph.conf; mend conf_file or -c") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (configparser.Error, UnicodeDecodeError) as error:
        sentence = " ".join(str(error).split())
        raise UsageError(f"{path}: not a ceph.conf: {sentence}") from error
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _unfolded(text: str) -> str:
    """Ceph goes on at a backslash; to configparser it is the indentation that folds a line."""
    return re.sub(r"^[ \t]+", "", re.sub(r"\\\n", "", text), flags=re.MULTILINE)


def merged(*layers: Mapping[str, Mapping[str, str]]) -> Sections:
    """Sections of all layers; an option of a later layer replaces the same one of an earlier."""
    result: Sections = {}
    for layer in layers:
        for section, options in layer.items():
            target = result.setdefault(section, {})
            target.update({normal_name(name): str(value) for name, value in options.items()})
    return result


def render(sections: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a ceph.conf."""
    lines: list[str] = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {value}" for name, value in options.items()]
        lines.append("")
    return "\n".join(lines)
