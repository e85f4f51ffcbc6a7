"""HTML elements by name, `E.DIV`; lxml's own builder has those of HTML5 from version 6 on alone."""

from __future__ import annotations

from typing import Any

from lxml.builder import ElementMaker
from lxml.html import html_parser
from lxml.html.builder import CLASS

_MAKER = ElementMaker(makeelement=html_parser.makeelement)


class _Elements:
    """`E.SECTION(E.CLASS("wide"), "text", child, id="x")` is an element `section`."""

    CLASS = staticmethod(CLASS)

    def __getattr__(self, name: str) -> Any:
        return getattr(_MAKER, name.lower())


E = _Elements()
