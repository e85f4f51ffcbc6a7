"""Charts: their values, and their drawing as SVG."""
