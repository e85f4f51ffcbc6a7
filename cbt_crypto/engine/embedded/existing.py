"""A cluster that is there already, as CBT's contract has it."""

from __future__ import annotations

from typing_extensions import override

from cbt_crypto.engine.embedded import admin_session
from cbt_crypto.engine.embedded.ceph import Ceph
from cbt_crypto.hosts.devices import krbd
from cbt_crypto.hosts.shell import answer_limit


class ExistingCeph(Ceph):
    """Only the campaign's own directories and processes beside it come and go."""

    use_existing = True

    @override
    def _undo(self) -> None:
        """Clients may have mapped images; nothing was laid over its devices, or made on them."""
        self._run(dict.fromkeys(self.site.clients, krbd.remove(self.tmp_dir)), "unmap the volumes")

    @override
    def _empty_devices(self) -> str:
        """None is the campaign's."""
        return ""

    @override
    def check_health(self) -> None:
        """Its owner sees to its health: it is only asked since when its OSDs are up."""
        limit = answer_limit(self.site.ceph_cmd)
        ask = f"timeout {limit} {self.site.ceph_command} osd dump --format json"
        answers = self._run({self.site.head: ask}, "ask since when OSDs are up", limit + 30)
        self.up_from = admin_session.up_from(answers[self.site.head])

    @override
    def mkpool(self, name: str, profile: str, application: str) -> None:
        """Its owner has made the pools."""
