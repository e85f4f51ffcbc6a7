from __future__ import annotations

from pathlib import Path

import pytest

from cbt_crypto.errors import UsageError
from cbt_crypto.lab import namespace

pytestmark = pytest.mark.unit


def test_the_first_free_network_is_taken() -> None:
    assert str(namespace.choose_network([])) == "10.231.0.0/24"
    assert str(namespace.choose_network(["10.231.0.0/24", "192.168.1.0/24"])) == "10.231.1.0/24"


def test_hosts_larger_networks_and_ipv6_are_understood() -> None:
    routed = ["10.231.0.7", "10.231.1.0/25", "10.231.2.0/23", "fe80::/64", "::1"]
    assert str(namespace.choose_network(routed)) == "10.231.4.0/24"


def test_a_machine_that_routes_the_whole_range_has_no_room() -> None:
    with pytest.raises(UsageError, match=r"no free network .*10\.231\.0\.0/16"):
        namespace.choose_network(["10.0.0.0/8"])


def test_names_of_links_are_stable_distinct_and_as_short_as_the_kernel_wants() -> None:
    one, other = Path("/root/.cache/cbt-crypto/labs/one"), Path("/root/.cache/cbt-crypto/labs/two")
    names = {namespace.bridge_name(one), namespace.bridge_name(other), namespace.link_name(one, 31)}
    assert len(names) == 3
    assert all(len(name) <= 15 for name in names)
    assert namespace.bridge_name(one) == namespace.bridge_name(Path(str(one)))
