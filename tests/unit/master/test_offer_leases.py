"""Leases of offers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.config import MasterConfig
from croupier.master.core.settings import Settings
from croupier.model.errors import InvalidRequest
from tests.harness.world import World


def test_framework_that_holds_all_offers_does_not_starve_others() -> None:
    """A job of 0.3 s once waited for 49 s."""
    world = World()
    for number in range(4):
        world.agent("cpus:4;mem:4GB", f"h{number}")
    hog = world.framework("hog", offer_lease_s=60.0)
    assert len(world.offers(hog)) == 4
    world.pass_time(1.0)
    honest = world.framework("honest", demand="cpus:1;mem:1GB")
    world.pass_time(15.0)
    assert world.offers(honest)


@pytest.mark.parametrize(("asked", "given"), [(0.0, 10.0), (3.0, 3.0), (15.0, 15.0), (1e12, 15.0)])
def test_requested_lease_is_granted_up_to_the_maximum(asked: float, given: float) -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    (offer,) = world.offers(world.framework(offer_lease_s=asked))
    assert offer.lease_s == given


def test_maximum_lease_is_a_setting() -> None:
    world = World(settings=replace(Settings(), max_offer_lease_s=40.0))
    world.agent("cpus:4;mem:4GB")
    (offer,) = world.offers(world.framework(offer_lease_s=60.0))
    assert offer.lease_s == 40.0


def test_negative_lease_is_refused() -> None:
    world = World()
    session = world.framework(offer_lease_s=-1.0)
    assert isinstance(world.closed[session], InvalidRequest)
    assert not world.state.frameworks


def test_lease_flags_must_agree() -> None:
    assert MasterConfig().settings().max_offer_lease_s == 15.0
    assert MasterConfig(offer_lease=30.0).settings().max_offer_lease_s == 30.0
    assert MasterConfig(max_offer_lease=120.0).settings().max_offer_lease_s == 120.0
    for wrong in (5.0, 3601.0, float("nan")):
        with pytest.raises(InvalidRequest, match="--max-offer-lease"):
            MasterConfig(max_offer_lease=wrong)
