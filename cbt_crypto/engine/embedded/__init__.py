"""A small engine of our own with CBT's names; `docs/contract.md` says what each must do.

It writes nothing outside `tmp_dir` on any host, ends only processes that it started, and fails
at the first command that fails.
"""
