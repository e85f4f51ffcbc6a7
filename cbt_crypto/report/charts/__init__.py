"""Charts as matplotlib SVG and as plotly figures for the page."""
