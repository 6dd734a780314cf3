"""Worlds in virtual time: no task is lost, and every mutant is found."""

from __future__ import annotations

import pytest

from tests.chaos.virtual.mutants import MUTANTS
from tests.chaos.virtual.runs import run, shrunk
from tests.harness.effort import portion

# A search from an outdated first seed takes minutes beside other tests.
pytestmark = pytest.mark.timeout(600)

SEEDS = portion(60)
# Worlds that the judge once got wrong: an older store brings a task back whose end only a replaced
# run knew; a master that was paused sends a refusal on a stream that its framework has closed; an
# executor exits with 0 just when its agent ends it, because it has ignored a kill.
MISJUDGED_SEEDS = (63_004_651, 64_000_559, 77_000_766)
# A task that an older store has lined up at an agent has run on another one since; a task that
# stores restored one after the other launch again where it has run; the last task of a removed
# framework was preempted when its agent registered; an older store has lined up a task of a removed
# framework; the only agent with ports is filled with members of a gang that need none.
DEFECTS = (64_003_918, 65_002_591, 21_068, 77_006_202, 2191)
SEEN = (
    "messages", "messages arrived", "messages dropped", "volumes", "mounts", "slots of devices",
)  # fmt: skip
# A mutant is found within so many seeds, with the kinds of faults that find it.
MOST_SEEDS = 400
# Where the search for a mutant begins, if not at 1; a wrong number only costs time.
FIRST_SEEDS = {
    "agent: updates of executors not durable": 5,
    "agent: tasks outlive their executor": 3,
    "agent: launches in executors again": 3,
    "master: a group charged in part": 6,
    "agent: updates out of order": 2,
    "master: ends wait for others": 10,
    "master: undecided not charged": 19,
    "master: drops acks": 46,
    "sdk: calls not sent again": 13,
    "agent: refuses silently": 10,
    "store: no fsync": 22,
    "store: no fence": 53,
    "store: no commit number": 72,
    "master: kill lost in failover": 121,
    "master: answers lost in failover": 5,
    "master: ends lost in failover": 5,
    "master: sends ends once": 15,
    "master: kill not repeated": 12,
    "master: silent is gone": 5,
    "master: never launches again": 10,
    "master: ignores what is listed": 14,
    "master: gone lost in failover": 3,
    "master: drain lost in failover": 4,
    "master: sends out of order": 16,
    "agent: has no name of its own": 109,
    "agent: a number twice": 22,
    "master: an old run comes back": 29,
    "agent: no fsync": 14,
    "agent: acts before durable": 27,
    "agent: ignores epochs": 250,
    "agent: forgets before ack": 14,
    "agent: an id twice": 36,
    "agent: adopts nothing": 4,
    "agent: strays ignored": 3,
    "agent: starts anew": 4,
    "agent: line outlives the session": 11,
    "master: line lost with its agent": 36,
    "agent: invents exits": 5,
    "agent: ack covers too much": 24,
    "agent: a member starts alone": 5,
    "agent: a member outlives its group": 6,
    "agent: rules end with the agent": 82,
    "master: a group in part": 6,
    "hold: offered to others": 15,
    "hold: outlives its time": 16,
    "master: adopts without proof": 2,
    "agent: recall ignored": 2,
    "agent: returns and starts": 2,
    "master: charge passed twice": 2,
    "volume: dealt to others": 4,
    "volume: not wiped": 4,
    "volume: task placed elsewhere": 4,
    "volume: given to another owner": 4,
    "volume: lost in failover": 14,
    "requeue: before the end": 135,
    "requeue: numbers from 1": 210,
    "reservation: kept after its end": 22,
    "reservation: of agents of another": 2,
    "usage: counted twice": 10,
    "devices: a slot twice": 7,
    "devices: not told by the agent": 19,
    "sdk: end shown twice": 11,
    "sdk: messages sent again": 347,
    "master: a message to another framework": 8,
    "master: messages not counted": 8,
    "agent: a message to another executor": 8,
}


def test_nothing_is_lost() -> None:
    outcomes = [run(seed) for seed in (*MISJUDGED_SEEDS, *DEFECTS, *range(1, SEEDS + 1))]
    assert [(o.seed, o.violation) for o in outcomes if o.violation] == []
    assert sum(outcome.injected.total() for outcome in outcomes) > SEEDS
    assert sum(outcome.tasks for outcome in outcomes) > SEEDS
    assert sum(outcome.seen["in executors"] for outcome in outcomes) > SEEDS // 2
    assert all(sum(outcome.seen[kind] for outcome in outcomes) for kind in SEEN)


def test_a_seed_replays_exactly() -> None:
    # Worlds that are small beside others, with many tasks.
    for seed in (23, 39):
        first, second = run(seed, traced=True), run(seed, traced=True)
        assert first.trace
        assert first.digest == second.digest
        assert run(seed).happened == first.happened
    assert run(23, traced=True).digest != run(39, traced=True).digest


def test_a_failing_seed_shrinks_to_few_faults() -> None:
    mutant = "agent: invents exits"
    failing = next(o for seed in range(87, 135) if (o := run(seed, mutant=mutant)).violation)
    small = shrunk(failing, mutant)
    assert small.violation
    assert small.trace
    assert len(small.faults) <= 2
    assert {fault.kind for fault in small.faults} & {"agent_crash", "worst_moment", "reboot"}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    only = MUTANTS[name].kinds
    first = FIRST_SEEDS.get(name, 1)
    seeds = (*range(first, MOST_SEEDS + 1), *range(1, first))
    found = (run(seed, mutant=name, only=only).violation for seed in seeds)
    first_found = next(filter(None, found), "nothing")
    # A mutant that no longer fits the code finds only itself.
    assert not first_found.startswith(("nothing", "TypeError", "AttributeError", "NameError"))
