"""Measure until it is known: paired blocks, warm-up, and intervals that hold whenever one looks.

Plain Python, because the host that measures need not have the libraries of the report.
docs/method.md says what is assumed, and how it is checked.
"""
