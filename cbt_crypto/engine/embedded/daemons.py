"""Shell text that makes and starts a cluster's daemons; it reaches hosts through `ceph`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from cbt_crypto.engine.embedded.keyring import KeyForm
from cbt_crypto.engine.embedded.options import WITHOUT_MODULES, without_modules
from cbt_crypto.hosts.ceph_conf import mon_vector
from cbt_crypto.hosts.site import HostScripts
from cbt_crypto.plan.file.cluster import ClusterSection
from cbt_crypto.plan.layout import ceph_dir, conf_path

quote = shlex.quote


class Daemons:
    """The daemons of one cluster, all below one directory that is the same on every host."""

    def __init__(self, section: ClusterSection, program: Callable[[str], str]) -> None:
        """`section` has one value for each key; `program` says what is called for one of Ceph's."""
        self._section = section
        self._program = program
        self._base = ceph_dir(section)
        self._conf = conf_path(section)

    def start(self, program: str, name: str, sudo: str = "", options: str = "") -> str:
        """Shell text that starts a daemon; it returns when the daemon has read its data.

        `name` is `osd.0` or the like; `sudo` and `options` end in a space, or are empty.
        """
        daemon_id = name.partition(".")[2]
        keys = f"{self._base}/daemons.keyring"
        mark = 'CBT_CRYPTO_MARK="$CBT_CRYPTO_MARK"'
        return (
            f"{sudo}env {mark} {quote(program)} -c {quote(self._conf)} -i {quote(daemon_id)} "
            f"--keyring {quote(keys)} {options}>> {quote(f'{self._base}/log/{name}.out')} 2>&1"
        )

    def first_maps(self, fsid: str, addresses: Mapping[str, str], form: KeyForm) -> str:
        """Shell text that makes the monitors' first maps; `addresses` are by monitor."""
        pairs = [f"--addv {quote(n)} {quote(mon_vector(a))}" for n, a in addresses.items()]
        monmaptool, osdmaptool = (quote(self._program(f"{it}maptool")) for it in ("mon", "osd"))
        return (
            f"cd {quote(self._base)}\n"
            f"{monmaptool} --create --clobber --fsid {fsid} {form.monmap_options()} "
            f"{' '.join(pairs)} monmap >&2\n"
            f"{osdmaptool} -c {quote(self._conf)} --clobber --create-from-conf osdmap "
            "> log/osdmap.out 2>&1 || { cat log/osdmap.out >&2; exit 1; }\n"
        )

    def mon_scripts(self, first_maps: str = "") -> HostScripts:
        """Start the monitors; make them before, when there is text that makes their maps."""
        return {
            host: first_maps
            + together([self._mon_script(name, bool(first_maps)) for name in named])
            for host, named in self._section.mons.items()
        }

    def _mon_script(self, name: str, make: bool) -> str:
        program = self._program(self._section.ceph_mon_cmd)
        start = self.start(program, f"mon.{name}")
        if not make:
            return start
        return (
            f"{quote(program)} -c {quote(self._conf)} -i {quote(name)} "
            "--mkfs --monmap monmap --osdmap osdmap --keyring daemons.keyring >&2\n" + start
        )

    def mgr_scripts(self) -> HostScripts:
        """Manager host -> shell text that starts its managers without waiting."""
        return {host: self._mgr_script(names) for host, names in self._section.mgrs.items()}

    def _mgr_script(self, names: Iterable[str]) -> str:
        program = self._program(self._section.ceph_mgr_cmd)
        starts = [self.start(program, f"mgr.{name}", options=WITHOUT_MODULES) for name in names]
        # A manager needs seconds to load its modules before it detaches: do not wait for it.
        detached = [f"setsid {start} </dev/null &" for start in starts]
        return "\n".join((without_modules(self._conf, self._program("ceph-conf")), *detached))


def together(scripts: Sequence[str]) -> str:
    """Shell text that runs scripts at once, and fails when one of them fails."""
    if len(scripts) == 1:
        return scripts[0]
    starts = "\n".join(f'(\n{script}\n) & pids="$pids $!"' for script in scripts)
    return (
        f"pids=\n{starts}\nstatus=0\n"
        "for pid in $pids; do wait $pid || status=$?; done\n[ $status = 0 ]"
    )
