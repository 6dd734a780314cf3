"""Leases of offers, and their bounds; `scenarios/leases.txt` tells the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.config import MasterConfig
from croupier.master.core.settings import Settings
from croupier.model.errors import InvalidRequest
from tests.harness.world import World


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


def test_lease_flags_must_agree() -> None:
    assert MasterConfig().settings().max_offer_lease_s == 15.0
    assert MasterConfig(offer_lease=30.0).settings().max_offer_lease_s == 30.0
    assert MasterConfig(max_offer_lease=120.0).settings().max_offer_lease_s == 120.0
    for wrong in (5.0, 3601.0, float("nan")):
        with pytest.raises(InvalidRequest, match="--max-offer-lease"):
            MasterConfig(max_offer_lease=wrong)
