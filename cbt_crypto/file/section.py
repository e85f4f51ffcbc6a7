"""What all mappings of the file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A mapping in the file. Unknown keys are errors, and so are `true` or a text for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)
