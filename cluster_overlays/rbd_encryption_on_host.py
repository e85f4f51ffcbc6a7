"""What client processes have open, and what is below: a `Watch`. Runs on hosts: Python 3.6."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple  # noqa: F401 - in comments

from cbt_crypto.hosts.clients_on_host import Clients
from cbt_crypto.hosts.devices.layers_on_host import Layers, opened, text_at


class Opened:
    """Block devices that client processes have open; of each, what it is on, looked at once."""

    def __init__(self, asked: Dict[str, Any]) -> None:
        self.clients = Clients(asked)
        self.layers = {}  # type: Dict[Tuple[str, str], List[Any]]

    def read_mappings(self) -> List[List[Any]]:
        """The layers of each open device, from the top down."""
        devices = set()  # type: Set[str]
        for pid in self.clients.present():
            try:
                devices.update(opened(pid))
            except OSError:
                continue
        return [self.below(device) for device in sorted(devices)]

    def below(self, device: str) -> List[Any]:
        """Numbers are given anew; the id that device-mapper knows a mapping by is not."""
        key = device, text_at(Path(f"/sys/dev/block/{device}/dm/uuid"))
        if key not in self.layers:
            self.layers[key] = Layers().below(device)
        return self.layers[key]


_opened = None  # type: Optional[Opened]


def see(asked: Dict[str, Any]) -> List[List[Any]]:
    """What processes called one of `programs` that carry the mark of `tmp_dir` have open."""
    global _opened  # noqa: PLW0603
    _opened = _opened or Opened(asked)
    return _opened.read_mappings()
