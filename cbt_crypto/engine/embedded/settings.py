"""The parsed file, as CBT's `settings` module offers it: module-level dicts, filled once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from cbt_crypto.archive.files import write_whole
from cbt_crypto.hosts.secret import document_without
from cbt_crypto.plan.file import of_cbt

cluster: dict[str, Any] = {}
benchmarks: dict[str, Any] = {}
client_endpoints: dict[str, Any] = {}
monitoring_profiles: dict[str, Any] = {}
common: dict[str, Any] = {}


def initialize(ctx: argparse.Namespace) -> None:
    """Fill the dicts from `ctx.config_file`; note the file, without passwords, in the archive.

    Uses `ctx.archive`, and `ctx.conf` for a ceph.conf that replaces the file's `conf_file`.
    """
    document = yaml.safe_load(Path(ctx.config_file).read_text(encoding="utf-8"))
    for name in ("cluster", "benchmarks", "client_endpoints", "monitoring_profiles", "common"):
        section: dict[str, Any] = globals()[name]
        section.clear()
        section.update(document.get(name) or {})
    if of_cbt.is_of_cbt(document):
        cluster.clear()
        cluster.update(of_cbt.translated(document)["cluster"])
    if getattr(ctx, "conf", None):
        cluster["conf_file"] = str(ctx.conf)
    cluster["archive_dir"] = str(ctx.archive)
    results = Path(ctx.archive) / "results"
    results.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(document_without(document), sort_keys=False, allow_unicode=True)
    write_whole(results / "cbt_config.yaml", text)


def getnodes(*roles: str) -> str:
    """The hosts of CBT roles (head, clients, osds, mons, mgrs), once each: `user@a,user@b`."""
    named = [cluster.get(role) or [] for role in roles]
    lists = [[one] if isinstance(one, str) else one for one in named]
    hosts = dict.fromkeys(host for listed in lists for host in listed)
    user = f"{cluster['user']}@" if cluster.get("user") else ""
    return ",".join(f"{user}{host}" for host in hosts)
