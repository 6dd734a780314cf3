"""Waits grow up to their cap, are never zero, and are random."""

from __future__ import annotations

import random

from croupier.net.backoff import Backoff


def test_the_bound_doubles_up_to_the_cap() -> None:
    for seed in range(50):
        backoff = Backoff(0.1, 1.0, random.Random(seed))
        for bound in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0):
            assert 0.01 <= backoff.next_s() <= bound


def test_reset_begins_again() -> None:
    backoff = Backoff(0.1, 100.0, random.Random(1))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_the_first_wait_obeys_the_cap_too() -> None:
    waits = [Backoff(10.0, 1.0, random.Random(seed)).next_s() for seed in range(50)]
    assert max(waits) <= 1.0


def test_peers_are_spread() -> None:
    waits = {Backoff(1.0, 1.0, random.Random(seed)).next_s() for seed in range(50)}
    assert len(waits) == 50


def test_a_new_cap_holds_from_now_on() -> None:
    for seed in range(50):
        backoff = Backoff(0.2, 10.0, random.Random(seed))
        for _ in range(8):
            backoff.next_s()
        backoff.limit(1.0)
        assert max(backoff.next_s() for _ in range(5)) <= 1.0
