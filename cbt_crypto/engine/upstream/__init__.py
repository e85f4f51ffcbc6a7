"""An upstream CBT checkout as the engine: its modules, unchanged, behind the contract's names.

Upstream deploys, executes and monitors. What stands here prepares what it reads, keeps it from
changing machines beyond `tmp_dir`, and makes what it ignores an error: docs/upstream.md.
"""
