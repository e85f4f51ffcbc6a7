"""Reading YAML so that every value can be found again by its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cbt_crypto.archive.files import YAML_DIGITS, Malformed, read_document
from cbt_crypto.errors import UsageError

KeyPath = tuple[Any, ...]

#: A campaign file is a few kilobytes. More than this is not one, or means harm by its aliases.
MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 32


@dataclass
class YamlDocument:
    """A YAML file's data, and the line of each of its keys. Paths are tuples of keys."""

    path: Path
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def where(self, key_path: KeyPath) -> str:
        """`FILE:LINE: a.b[2]`, with the line of the nearest key that is in the file."""
        known = key_path
        while known and known not in self.lines:
            known = known[:-1]
        line = f":{self.lines[known]}" if known in self.lines else ""
        name = dotted(key_path)
        return f"{self.path}{line}: {name}" if name else f"{self.path}{line}"


def dotted(key_path: KeyPath) -> str:
    """`('a', 'b', 2)` as `a.b[2]`."""
    text = ""
    for key in key_path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return printable(text)


def printable(text: str) -> str:
    """The text in one line, with every other control character as Python would write it."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def read(path: Path) -> YamlDocument:
    """Read a YAML file. Raises UsageError naming the file, and the line where there is one."""
    text = _text(path)
    try:
        _check_depth(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except yaml.YAMLError as error:
        sentence = str(error).partition("\n")[0]
        raise UsageError(f"{path}: not YAML: {sentence}") from error
    document = YamlDocument(path, None)
    if node is not None:
        _note_lines(node, (), document, [0])
    try:
        # Of the nodes at hand: to parse the text again takes as long as all else here.
        document.data = None if node is None else yaml.SafeLoader("").construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except (ValueError, AttributeError) as error:  # PyYAML of `!!timestamp x`
        raise UsageError(f"{path}: holds a value that cannot be read: {error}") from error
    return document


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> UsageError:
    line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
    return UsageError(f"{path}{line}: not YAML: {error.problem}; look there, and just above it")


def _check_depth(path: Path, text: str) -> None:
    """Before anything follows the nesting: PyYAML would recurse until Python gives up."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UsageError(
                f"{path}: nested deeper than {MAX_DEPTH} levels; is it a campaign file?"
            )


def _text(path: Path) -> str:
    if not path.exists():
        raise UsageError(f"{path}: no such file; name a campaign's YAML file")
    try:
        return read_document(path, MAX_BYTES).decode("utf-8")
    except Malformed as error:
        sentence = str(error).replace("so it was not read", "so it is not a campaign file")
        raise UsageError(f"{path}: {sentence}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text in UTF-8; is it a YAML file?") from error


def _note_lines(node: yaml.Node, path: KeyPath, document: YamlDocument, seen: list[int]) -> None:
    seen[0] += 1
    if seen[0] > MAX_NODES:
        raise UsageError(
            f"{document.path}: its aliases unfold to more than {MAX_NODES} values; use fewer"
        )
    if len(path) > MAX_DEPTH:
        raise UsageError(
            f"{document.path}: an alias refers to what it is a part of; write out what is meant"
        )
    line = document.lines.setdefault(path, node.start_mark.line + 1)
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > YAML_DIGITS:
        raise UsageError(
            f"{document.path}:{line}: {dotted(path)}: is a number of more than {YAML_DIGITS} digits"
        )
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_lines(item, (*path, index), document, seen)
    elif isinstance(node, yaml.MappingNode):
        _note_mapping(node, path, document, seen)


def _note_mapping(
    node: yaml.MappingNode, path: KeyPath, document: YamlDocument, seen: list[int]
) -> None:
    keys: set[str] = set()
    for key_node, value in node.value:
        key = key_node.value if isinstance(key_node.value, str) else "?"
        if key in keys and key != "<<":
            line = key_node.start_mark.line + 1
            name = dotted((*path, key))
            raise UsageError(f"{document.path}:{line}: {name}: is here twice; keep one")
        keys.add(key)
        document.lines[(*path, key)] = key_node.start_mark.line + 1
        _note_lines(value, (*path, key), document, seen)
