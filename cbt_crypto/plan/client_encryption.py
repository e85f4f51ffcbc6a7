"""Configurations whose clients encrypt, and scenarios whose clients cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cbt_crypto.cluster_overlays.stack import Stack
from cbt_crypto.plan.cells import Cell
from cbt_crypto.plan.file import Campaign


def problems(campaign: Campaign, cells: Sequence[Cell]) -> Iterable[str]:
    """A sentence for each such pair."""
    encrypting = {
        name
        for name, overlays in campaign.configurations.items()
        if Stack(overlays).volume_encryption() is not None
    }
    for cell in cells:
        if cell.configuration in encrypting and not cell.scenario.takes_encryption:
            yield (
                f'{cell.scenario.name}: the clients of "{cell.configuration}" are to encrypt their '
                "volumes, which is done over the kernel's client alone; name configurations "
                "without rbd_encryption there, or measure it by rbd_krbd"
            )
