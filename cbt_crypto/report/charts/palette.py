"""Colours, patterns and dashes that people with any colour vision tell apart.

The hues are those of Okabe and Ito, darkened or lightened a little for their background. A
configuration has the same one in every chart.
"""

from __future__ import annotations

#: On white, and on nearly black.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b3589a", "#b8860b", "#2a9fd6", "#5b5b5b", "#8c3b00")
DARK = ("#4db2e6", "#ff8c42", "#2ecc9b", "#e08cc4", "#f0c53a", "#9ad8f7", "#c2c2c2", "#d9a37a")
#: For stacked parts: user, sys, irq, softirq, iowait.
PARTS_LIGHT = ("#0072b2", "#d55e00", "#b8860b", "#009e73", "#9a9a9a")
PARTS_DARK = ("#4db2e6", "#ff8c42", "#f0c53a", "#2ecc9b", "#8a8a8a")

#: Plotly's names of fills and dashes, in the order of the colours.
FILLS = ("", "/", "x", ".", "\\", "-", "+", "|")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
#: The same as matplotlib's hatches.
HATCHES = ("", "//", "xx", "..", "\\\\", "--", "++", "||")
