"""What a cluster that exists must offer before anything of it is touched: it lets the campaign in,
has its pools, and has none of its images.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from typing_extensions import override

from cbt_crypto.hosts import ceph_conf, rados_client_on_host, shell
from cbt_crypto.hosts.devices import rbd_images
from cbt_crypto.hosts.requirement import CLUSTER, Fact, Requirement
from cbt_crypto.hosts.site import Site
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file.cluster import ClusterSection

_FSID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# The head may be a command that enters a container: what `ceph` says is all that is known of it.
_ANSWERS = """\
wrong=
if said=$(timeout LIMIT_S ASK osd dump 2>&1); then
    for pool in $POOLS; do
        echo "$said" | grep -q "^pool [0-9]* '$pool' " || wrong="has no pool $pool; make it"
    done
else
    case $?:$said in
    124:*) wrong="does not answer within LIMIT_S s; is it up, and are these its monitors" ;;
    *'unable to find a keyring on '*)
        keys=${said#*unable to find a keyring on }; keys=${keys%%: *}
        wrong="takes a key, and that of $CLIENT is not in ${keys%,}; put it there" ;;
    *'errno 95'*) wrong="takes a key, and none of $CLIENT is where Ceph looks for it" ;;
    *) wrong="does not let $CLIENT in: $(echo "$said" | tail -n 1)" ;;
    esac
fi
[ -z "$wrong" ] || echo "the cluster of $CONF $wrong"
"""
_HAS_NO_IMAGE = """\
if [ -z "$wrong" ]; then
    there=$(PRESENT
    )
    first=$(echo "$there" | sort | head -n 1)
    case $first in
    '') echo "$said" | sed -n 's/^fsid //p' ;;
    'there '*) echo "image ${first#there } is on the cluster already, and this campaign would \
make it; if a killed run left it, cbt-crypto cleanup of its archive removes it, else remove or \
rename it" ;;
    *) echo "rbd info does not tell whether there is an image ${first#unknown }; mend that" ;;
    esac
fi"""
_LETS_CLIENT_IN = """\
said=$( CONNECT
) || :
case $said in
????????-????-????-????-????????????) echo "$said" ;;
*) echo "$CLIENT is not let in: $(echo "$said" | tail -n 1)" ;;
esac"""


@dataclass(frozen=True)
class LetIn(Fact):
    """That a host is let into a cluster, whose fsid its script prints."""

    @override
    def shown(self, output: str) -> str:
        return "no" if self.judge(output) else output.strip()[:8]

    @override
    def judge(self, output: str) -> Optional[str]:
        return None if _FSID.fullmatch(output.strip()) else Requirement.judge(self, output)


def of_head(
    section: ClusterSection, site: Site, pools: Sequence[str], names: Sequence[str]
) -> Requirement:
    """That the cluster lets the head in, has these pools, and no image by one of these names."""
    words = ceph_conf.client_words(site.conf, site.client_id)
    limit, of_rbd = shell.answer_limit(site.ceph_cmd), shell.answer_limit(section.rbd_cmd)
    rbd = f"timeout {of_rbd} {shell.command(section.rbd_cmd)} {words}"
    script = (
        _settings(site, POOLS=" ".join(pools))
        + _ANSWERS.replace("LIMIT_S", str(limit)).replace("ASK", site.ceph_command)
        + _HAS_NO_IMAGE.replace("PRESENT", rbd_images.present(names, rbd) or ":")
    )
    takes_s = limit + of_rbd * rbd_images.turns(names)
    return LetIn("existing cluster", (site.head,), script, CLUSTER, takes_s)


def of_clients(site: Site, cells: Sequence[Cell]) -> Requirement:
    """That it lets those in who load it, by the files and keys that are on their own hosts."""
    loading = (host for cell in cells for host in cell.scenario.active_clients(site.clients))
    asked = {"conf": site.conf, "user": site.client_id, "names": ["fsid"]}
    connect = shell.python(shell.program(rados_client_on_host), asked)
    # fio is no root, who may read every key; what the kernel maps is mapped by root.
    if any(cell.scenario.uses_client_libraries for cell in cells):
        connect = f"{shell.PYTHON}='python3 -I -S'\n{connect}"
    script = _settings(site) + _LETS_CLIENT_IN.replace("CONNECT", f"(\n{connect}) 2>&1")
    hosts = tuple(dict.fromkeys(loading))
    return LetIn("client", hosts, script, CLUSTER, rados_client_on_host.TIMEOUT_S + 10)


def _settings(site: Site, **more: str) -> str:
    values = {"CONF": site.conf, "CLIENT": f"client.{site.client_id}", **more}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
