"""An upstream CBT checkout as the engine, unchanged, behind the contract's names.

It prepares what upstream reads, keeps it within `tmp_dir`, and raises what it ignores.
"""
