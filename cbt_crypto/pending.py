"""Steps that are put off until a cell is measured that needs them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional, Union

from cbt_crypto.cluster_overlays.base import Transition
from cbt_crypto.plan.steps import Deploy, Prefill


@dataclass
class Pending:
    """What the next measured cell needs. Cells that are known already need no deployment."""

    deploy: Optional[Deploy] = None
    prefills: list[Prefill] = field(default_factory=list)

    def add(self, step: Union[Deploy, Prefill]) -> None:
        """Put a step off. A configuration that nothing was measured in is passed over."""
        if isinstance(step, Prefill):
            self.prefills.append(step)
        elif step.how is Transition.REBUILD:
            # the volumes were to be on a cluster that nobody needed
            self.deploy, self.prefills = step, []
        elif self.deploy is not None and self.deploy.how is Transition.REBUILD:
            self.deploy = replace(self.deploy, configuration=step.configuration)
        else:
            self.deploy = step

    def take(self) -> list[Union[Deploy, Prefill]]:
        """All that is put off, in order; nothing is any more."""
        steps: list[Union[Deploy, Prefill]] = [
            *([self.deploy] if self.deploy else []),
            *self.prefills,
        ]
        self.deploy, self.prefills = None, []
        return steps
