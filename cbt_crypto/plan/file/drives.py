"""Drives that scenarios work on without Ceph, as the file names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Optional

from pydantic import Field, model_validator
from typing_extensions import Self

from cbt_crypto.plan.file.field_types import AbsolutePath, FileSection, HostName

if TYPE_CHECKING:
    pass


class DriveSection(FileSection):
    """A drive of a host, or an MD RAID-0 that is made of several for the purpose."""

    host: HostName = Field(description="the host that has it; one of clients")
    device: Optional[AbsolutePath] = Field(None, description="its block device; it is overwritten")
    raid0: Optional[list[AbsolutePath]] = Field(
        None,
        min_length=2,
        description="instead of device: block devices of which an MD RAID-0 is made; they are "
        "overwritten",
    )
    chunk_kib: int = Field(512, ge=4, le=1 << 20, description="KiB of a chunk of the RAID-0")
    encrypt: Literal["array", "members"] = Field(
        "array", description="where luks puts its mappings: over the RAID-0, or under it"
    )
    plp: Optional[bool] = Field(
        None, description="whether it has power-loss protection; charts group drives by it"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.device is None) == (self.raid0 is None):
            raise ValueError("takes one of device and raid0")
        return self

    @property
    def devices(self) -> tuple[str, ...]:
        """The block devices that it is made of."""
        return (self.device,) if self.device is not None else tuple(self.raid0 or ())
