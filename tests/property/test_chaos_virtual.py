"""Worlds in virtual time: nothing is lost in them, and what is broken on purpose is noticed."""

from __future__ import annotations

import pytest

from tests.chaos.virtual.mutants import MUTANTS
from tests.chaos.virtual.runs import run, shrunk

SEEDS = 60
# Within so many seeds of the kinds of faults that it is to be noticed by.
NOTICED = 120


def test_nothing_is_lost() -> None:
    outcomes = [run(seed) for seed in range(1, SEEDS + 1)]
    assert [(o.seed, o.violation) for o in outcomes if o.violation] == []
    assert sum(outcome.injected.total() for outcome in outcomes) > SEEDS
    assert sum(outcome.tasks for outcome in outcomes) > SEEDS


def test_a_seed_replays_exactly() -> None:
    for seed in (3, 7):
        first, second = run(seed, traced=True), run(seed, traced=True)
        assert first.trace
        assert first.digest == second.digest
        assert run(seed).happened == first.happened
    assert run(3, traced=True).digest != run(7, traced=True).digest


def test_a_failing_seed_shrinks_to_what_it_takes() -> None:
    mutant = "agent: invents exits"
    failing = next(o for seed in range(1, 50) if (o := run(seed, mutant=mutant)).violation)
    small = shrunk(failing, mutant)
    assert small.violation
    assert small.trace
    assert len(small.faults) <= 2
    assert {fault.kind for fault in small.faults} & {"agent_crash", "worst_moment", "reboot"}


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_broken_on_purpose_is_noticed(name: str) -> None:
    only = MUTANTS[name].kinds
    assert any(run(seed, mutant=name, only=only).violation for seed in range(1, NOTICED + 1))
