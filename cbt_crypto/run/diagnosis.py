"""After a failure: which host is silent, which daemon has ended, which disk is full.

What failed first is often not what is broken: a client's fio waits for an OSD host that lost power.
"""

from __future__ import annotations

import shlex

from cbt_crypto.hosts.remote import Remote
from cbt_crypto.hosts.site import Site

_TIMEOUT_S = 40
#: Less than this, in KiB, is no room for anything.
_FULL_KB = 2048


def diagnosis(remote: Remote, site: Site) -> str:
    """What is wrong on the hosts now: clauses that each begin with `; `, or nothing."""
    results = remote.attempt(
        dict.fromkeys(site.hosts, _script(site.tmp_dir)), _TIMEOUT_S, "diagnose"
    )
    clauses: list[str] = []
    for host, result in results.items():
        if result.status is None:
            clauses.append(f"{host} does not answer")
            continue
        lines = (line.strip() for line in result.stdout.splitlines())
        clauses += [f"{line} on {host}" for line in lines if line]
    return "".join(f"; {clause}" for clause in clauses)


def _script(tmp_dir: str) -> str:
    """A process id may be another's by now, so the program's name is looked at too."""
    return f"""\
cd {shlex.quote(tmp_dir)}/ceph/run 2>/dev/null || exit 0
for file in *.pid; do
    [ -s "$file" ] || continue
    case $(cat "/proc/$(cat "$file")/comm" 2>/dev/null) in
        ceph-*) ;;
        *) echo "${{file%.pid}} has ended" ;;
    esac
done
free=$(df -Pk . | awk 'NR == 2 {{ print $4 }}')
[ "$free" -ge {_FULL_KB} ] || echo 'the disk of tmp_dir is full'"""
