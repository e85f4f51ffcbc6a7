"""Text from an archive, before it reaches a terminal or a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

_Value = TypeVar("_Value")


def map_text(value: _Value, change: Callable[[str], str]) -> _Value:
    """`value` with `change` applied to every string in it, at any depth, keys included."""
    mapped: _Value = _mapped(value, change)
    return mapped


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, BaseModel):
        return value.model_copy(update=_mapped(dict(value), change))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _mapped(getattr(value, f.name), change) for f in fields(value)}
        return replace(value, **changed)
    return value
