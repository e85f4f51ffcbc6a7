"""How kernels of client endpoints speak to the cluster: as its overlays have it."""

from __future__ import annotations

import pytest

from cbt_crypto.cluster_overlays.secure_messenger import SecureMessenger
from cbt_crypto.engine.upstream.cluster import kernel_mode

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("overlay", "mode"), [(SecureMessenger(), "secure"), (SecureMessenger.absent(), "crc")]
)
def test_it_is_the_mode_of_the_overlay(overlay: SecureMessenger, mode: str) -> None:
    """The overlay writes it for all; a kernel that asked for crc was denied by a secure cluster."""
    assert kernel_mode(overlay.ceph_conf()) == mode


def test_what_a_file_says_of_clients_alone_comes_first() -> None:
    sections = {"global": {"ms_client_mode": "secure"}, "client": {"ms_client_mode": "crc secure"}}
    assert kernel_mode(sections) == "crc"
    assert kernel_mode({}) == "crc"
