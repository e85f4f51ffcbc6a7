"""What pydantic found wrong with a value, as a sentence for people."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cbt_crypto.plan.file.document import KeyPath
from cbt_crypto.plan.file.field_types import meaning_of

#: pydantic's name of an error -> what the value must be.
_MUST_BE = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "string_type": "must be a text",
}
_LONGEST_VALUE = 60
#: pydantic puts the kind of a union's member into the location; the file has no such key.
_UNION_MEMBER = re.compile(
    r"(literal|list|dict|nullable|function-[a-z]+|constrained-[a-z]+)\[.*|constrained-[a-z]+"
    r"|str|int|float|bool|\[key\]|MeasureUntil"
)


def sentences(model: type[BaseModel], error: ValidationError) -> Iterator[tuple[KeyPath, str]]:
    """For each value that is wrong, the keys that lead to it and one sentence."""
    by_location: dict[KeyPath, list[Mapping[str, Any]]] = defaultdict(list)
    for detail in error.errors():
        by_location[_location(detail)].append(detail)
    for location, details in by_location.items():
        # A mapping in which something is wrong was meant to be one, whatever else it could be.
        inside = any(
            other[: len(location)] == location != other for other in by_location if location
        )
        if inside and all(detail["type"] in _MUST_BE for detail in details):
            continue
        # Of a union, the member that the value was meant for says more than the others.
        meant = [detail for detail in details if detail["type"] not in _MUST_BE]
        if meant or len(details) == 1:
            yield location, _sentence(model, location, (meant or details)[0])
        else:
            kinds = " or ".join(_MUST_BE[detail["type"]] for detail in details)
            kinds = kinds.replace("or must be", "or")
            yield location, f"{kinds}, not {_shown(details[0].get('input'))}"


def _location(detail: Mapping[str, Any]) -> KeyPath:
    return tuple(
        part
        for part in detail["loc"]
        if not (isinstance(part, str) and _UNION_MEMBER.fullmatch(part))
    )


def _sentence(model: type[BaseModel], location: KeyPath, detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        names = _names_at(model.model_json_schema(by_alias=False), location[:-1])
        return f"unknown key; {nearest(str(location[-1]), names)}"
    if kind == "missing":
        return "is missing; docs/file.md describes it"
    if kind == "too_short":
        return "is empty; give at least one"
    given = detail.get("input")
    if kind == "string_pattern_mismatch":
        return f"must be {meaning_of(detail['ctx']['pattern'])}, not {_shown(given)}"
    if kind in _MUST_BE:
        return f"{_MUST_BE[kind]}, not {_shown(given)}"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    shown = "" if isinstance(given, dict) else f", not {_shown(given)}"
    return f"{message[:1].lower()}{message[1:]}{shown}"


def nearest(name: str, names: Iterable[str]) -> str:
    """A question with the name that was probably meant, or all that there are, or that none is."""
    names = list(names)
    if not names:
        return "it takes none; leave it out"
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f'did you mean "{near[0]}"?' if near else f"valid are: {', '.join(names)}"


def kind_of(value: Any) -> str:
    """What the file's author would call the value."""
    if value is None:
        return "nothing"
    kinds = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false"}
    return kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    if value is None or isinstance(value, (dict, list)):
        return kind_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return "a number as large as that"
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _names_at(schema: Mapping[str, Any], location: KeyPath) -> list[str]:
    """The keys that a JSON Schema allows at `location`."""
    node = schema
    for key in location:
        node = _resolve(schema, node)
        named = node.get("properties", {}).get(key)
        any_name = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
        node = named or any_name[0] or {}
    return list(_resolve(schema, node).get("properties", {}))


def _resolve(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    for choice in node.get("anyOf", ()):
        if "$ref" in choice:
            node = choice
    if "$ref" in node:
        resolved: Mapping[str, Any] = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        return resolved
    return node
