"""What client processes have open, and what is below: a `Watch`. Runs on hosts: Python 3.6."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple  # noqa: F401 - in comments

from cbt_crypto.hosts.clients_on_host import Clients
from cbt_crypto.hosts.devices.layers_on_host import Layers, opened, text_at
from cbt_crypto.hosts.trust_on_host import mounts


class Opened:
    """Block devices that client processes have open; of each, what it is on, looked at once."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self.clients = Clients(asked)
        self.mounts = asked["tmp_dir"] + "/mnt/"
        self.layers = {}  # type: Dict[Tuple[str, str, str], List[Any]]

    def read_mappings(self) -> List[List[Any]]:
        """The layers of each open device, or of what an open file of ours is on, from the top."""
        devices, kinds = set(), self.file_systems()  # type: Set[str], Dict[str, str]
        for pid in self.clients.present():
            try:
                devices.update(opened(pid, lambda target, _: target.startswith(self.mounts)))
            except OSError:
                continue
        # What was mounted before may be unmounted by now, as its process has ended.
        kinds.update(self.file_systems())
        return [self.below(device, kinds.get(device, "")) for device in sorted(devices)]

    def below(self, device: str, kind: str) -> List[Any]:
        """Numbers are given anew; the id that device-mapper knows a mapping by is not."""
        key = device, text_at(Path(f"/sys/dev/block/{device}/dm/uuid")), kind
        if key not in self.layers:
            self.layers[key] = Layers().below(device)
            self.layers[key][0].update({"filesystem": kind} if kind else {})
        return self.layers[key]

    def file_systems(self) -> Dict[str, str]:
        """Device -> the file system on it, of all that is mounted below our directory."""
        ours = (fields for fields in mounts() if fields[4].startswith(self.mounts))
        return {fields[2]: fields[fields.index("-") + 1] for fields in ours}


_opened = None  # type: Optional[Opened]


def see(asked: Dict[str, Any]) -> List[List[Any]]:
    """What processes called one of `programs` that carry the mark of `tmp_dir` have open."""
    global _opened  # noqa: PLW0603
    _opened = _opened or Opened(asked)
    return _opened.read_mappings()
