"""What a host must offer, or has to tell, before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from typing_extensions import override

#: The column of the cluster that hosts are let into, which must be the same one.
CLUSTER = "cluster"


@dataclass(frozen=True)
class Requirement:
    """Something a host must offer: a script that prints a fact, and the judge of that fact.

    `script` runs on each of `hosts`; `judge` takes its stripped output and returns None when
    it will do, else one sentence that says what is missing and what to do. `column` is that of
    `check`'s table; an overlay's requirements have one of their own there. `takes_s` is how long
    the script may take where that is more than a moment.
    """

    name: str
    hosts: tuple[str, ...]
    script: str
    column: str = "tools"
    takes_s: int = 0

    def judge(self, output: str) -> Optional[str]:
        """Return None when `output` is satisfactory. The default wants the script to print ok."""
        return None if output.strip() == "ok" else output.strip() or f"{self.name} is missing"


@dataclass(frozen=True)
class Fact(Requirement):
    """A requirement that shows what it found, and may warn of what is no error."""

    def shown(self, output: str) -> str:
        """What stands in the table."""
        return output.strip().partition("\n")[0] or "?"

    def judge(self, output: str) -> Optional[str]:
        """None: most facts are for information."""
        return None

    def advice(self, output: str) -> Optional[str]:
        """One sentence on what is not as it should be and how to mend it, or None."""
        return None


# zram is memory itself.
SWAP = "sed '1d; /^\\/dev\\/zram/d; s/ .*//; s/^/swap /' /proc/swaps"


def swap_advice(output: str) -> Optional[str]:
    """One sentence when what `SWAP` printed shows that keys in a tmpfs may reach a disk."""
    swaps = [line[len("swap ") :] for line in output.splitlines() if line.startswith("swap ")]
    if not swaps:
        return None
    where = ", ".join(swaps)
    return f"keys in memory may be written to swap ({where}); swapoff -a for the campaign"


@dataclass(frozen=True)
class KeysInMemory(Fact):
    """For hosts with keys in a tmpfs."""

    script: str = f"echo ok\n{SWAP}"

    @override
    def advice(self, output: str) -> Optional[str]:
        return swap_advice(output)
