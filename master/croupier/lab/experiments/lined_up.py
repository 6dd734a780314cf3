"""Tasks lined up at agents: how much longer does a framework wait that comes first?

One node with a few slots. The busy framework submits tasks of about 10 ms without end. The guest
has the same weight and comes again and again, each time with some tasks for each slot. It holds
nothing when it comes, so each slot that becomes free is due to it until it holds half of them.

The same runs without lining up. Then each slot stands idle for a round trip after each task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from croupier.lab.cluster import PATIENT, Node, Series, SimulatedCluster, make_allocator
from croupier.sim.agent import Link
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

EXPECTED = (
    "One framework submits tasks of 8 to 12 ms without end, another one comes with a smaller\n"
    "share. Expected: it waits for the recall and the longest task, 12 ms and 1.5 round trips\n"
    "at most, whether tasks are lined up or not; lined up, slots are hardly ever idle, unless\n"
    "a round trip takes longer than the 64 tasks that are lined up at the node at most."
)

SLOTS: Final = (2, 8, 16)
ROUND_TRIPS_S: Final = (0.001, 0.005, 0.01, 0.02, 0.05)
# Beyond it, 64 tasks of 10 ms at an agent are less work than a round trip for each slot needs.
LONGEST_BUSY_S: Final = 0.02
TASK_S: Final = (0.008, 0.012)
# The busy framework has all slots for so long before the guest comes.
ALONE_S: Final = 0.5
VISITS: Final = 5
PAUSE_S: Final = (0.05, 0.1)
# The guest's tasks for each slot: more than are lined up behind the ones that run.
TASKS: Final = 12
SAMPLE_S: Final = 0.0005
_SLOT: Final = Size.of(1, 1)
_SHAPE: Final = Shape(_SLOT.resources, _SLOT)


@dataclass(frozen=True, slots=True)
class LinedUpOutcome:
    """One run; times in seconds.

    Attributes:
        per_s: tasks of the busy framework in each second while it was alone.
        first_s: the longest wait of the guest until its first task has started.
        half_s: the longest wait of the guest until it holds half of the slots.
    """

    slots: int
    round_trip_s: float
    per_s: float
    first_s: float
    half_s: float
    simulated: Simulated

    @property
    def bound_s(self) -> float:
        """The longest wait for a start: see decision 50."""
        return TASK_S[1] + 1.5 * self.round_trip_s


class Contest:
    """A busy framework and a guest on one node; `series` has their parts of the slots, in %."""

    def __init__(self, slots: int, round_trip_s: float, is_lined: bool, seed: int) -> None:
        size = Size(_SLOT.cpus * slots, _SLOT.mem * slots)
        settings = PATIENT if is_lined else replace(PATIENT, line_window_s=0.0)
        self.cluster = SimulatedCluster(
            [Node("node", size, size.resources)],
            make_allocator(seed=seed),
            seed,
            settings,
            link=Link(round_trip_s / 2, lines_up=True),
        )
        self.visits: list[list[Work]] = []
        self.series = Series(self.cluster.kernel, SAMPLE_S)
        self._slots = slots
        self._busy = self._framework("busy", self._on_end)
        self._busy.submit(self._works(TASKS * slots + 100))
        self._guest = self._framework("guest", self._on_guest_end)
        self.cluster.kernel.at(ALONE_S, self._visit)

    def _framework(self, name: str, on_end: Callable[[Work], None]) -> SimulatedFramework:
        made = self.cluster.framework(name, name, Habits(submits=True), (), on_end)
        whole = _SLOT.cpus * self._slots / 100
        self.series.watch(name, lambda: made.held.get("cpus", 0) / whole)
        return made

    def _works(self, number: int) -> list[Work]:
        return [Work(_SHAPE, self.cluster.rng.uniform(*TASK_S)) for _ in range(number)]

    def _visit(self) -> None:
        works = self._works(TASKS * self._slots)
        self.visits.append(works)
        self._guest.submit(works)

    def _on_end(self, _work: Work) -> None:
        self._busy.submit(self._works(1))

    def _on_guest_end(self, _work: Work) -> None:
        if not (self._guest.waiting or self._guest.running):
            pause_s = self.cluster.rng.uniform(*PAUSE_S)
            self.cluster.kernel.at(self.cluster.now + pause_s, self._visit)

    def waits_s(self) -> tuple[float, float]:
        """Return the guest's longest waits for a first start, and for half of the slots."""
        begun = [works[0].submitted_at for works in self.visits]
        first = [
            min(work.started_at for work in works if work.started_at is not None)
            for works in self.visits
        ]
        held = self.series.curves["guest"]
        half = [next(at for at, part in held if at >= start and part >= 50) for start in begun]
        longest = [max(b - a for a, b in zip(begun, ends, strict=True)) for ends in (first, half)]
        return longest[0], longest[1]


def run_contest(slots: int, round_trip_s: float, is_lined: bool, seed: int) -> LinedUpOutcome:
    """Run the busy framework alone, and then with visits of the guest."""
    contest = Contest(slots, round_trip_s, is_lined, seed)
    cluster = contest.cluster
    cluster.run(ALONE_S / 5)
    before = cluster.simulated
    cluster.run(ALONE_S)
    per_s = (cluster.simulated.tasks - before.tasks) / (cluster.now - before.virtual_s)
    cluster.run(60.0, is_over=lambda: len(contest.visits) > VISITS)
    contest.visits.pop()
    return LinedUpOutcome(slots, round_trip_s, per_s, *contest.waits_s(), cluster.simulated)


def run(options: Options, progress: Progress) -> Result:
    """Run each number of slots with each round trip, with and without lining up."""
    cases = [(slots, trip_s) for slots in SLOTS for trip_s in ROUND_TRIPS_S]
    pairs = []
    for number, case in enumerate(cases):
        progress(number / len(cases), f"{case[0]} slots")
        lined, single = (run_contest(*case, is_lined, options.seed) for is_lined in (True, False))
        pairs.append((lined, single))
    return report(pairs)


def report(pairs: list[tuple[LinedUpOutcome, LinedUpOutcome]]) -> Result:
    """Return the result of all runs, each with lining up and without."""
    rows = tuple(
        (
            lined.slots,
            lined.round_trip_s * 1000,
            *(round(each.per_s) for each in pair),
            *(round(each.first_s * 1000, 1) for each in pair),
            lined.bound_s * 1000,
            *(round(each.half_s * 1000, 1) for each in pair),
        )
        for pair in pairs
        for lined in pair[:1]
    )
    columns: tuple[str, ...] = ("slots", "round trip, ms", "tasks/s, lined up", "one by one")
    columns += ("first start, ms, lined up", "one by one", "bound")
    columns += ("half of the slots, ms, lined up", "one by one")
    outcomes = [each for pair in pairs for each in pair]
    late = [each for each in outcomes if max(each.first_s, each.half_s) > each.bound_s]
    near = [lined for lined, _ in pairs if lined.round_trip_s <= LONGEST_BUSY_S]
    slowest = min(lined.per_s * sum(TASK_S) / 2 / lined.slots for lined in near)
    far = [pair for pair in pairs if pair[0] not in near]
    gain = min((lined.per_s / single.per_s for lined, single in far), default=3.0)
    checks = (
        Check(
            "the guest runs and holds half of the slots in time",
            "after at most 12 ms and 1.5 round trips",
            f"later in {len(late)} of {len(outcomes)} runs",
            not late,
        ),
        Check(
            "lined up, a busy framework alone uses its slots",
            "at least 95 % of the time, with round trips of up to 20 ms",
            f"{slowest:.1%}",
            slowest >= 0.95,
        ),
        Check(
            "with longer round trips, lined-up tasks still save most of them",
            "at least 3 times the tasks/s of one by one",
            f"{gain:.1f} times",
            gain >= 3,
        ),
    )
    simulated = sum((each.simulated for each in outcomes), Simulated(0, 0))
    tables = (Table("lined_up", columns, rows),)
    return Result(checks, tables, _plots(pairs), simulated=simulated)


def _plots(pairs: list[tuple[LinedUpOutcome, LinedUpOutcome]]) -> tuple[Plot, ...]:
    most = [pair for pair in pairs if pair[0].slots == SLOTS[-1]]

    def lines(value: Callable[[LinedUpOutcome], float]) -> tuple[Line, ...]:
        return tuple(
            Line(label, [(pair[0].round_trip_s * 1000, value(pair[part])) for pair in most])
            for part, label in enumerate(("lined up", "one by one"))
        )

    bound = Line("bound", [(each.round_trip_s * 1000, each.bound_s * 1000) for each, _ in most])
    waits = (*lines(lambda each: each.first_s * 1000), bound)
    speeds, trip = lines(lambda each: each.per_s), "round trip, ms"
    return (
        Plot("lined_up_wait", f"Wait for one of {SLOTS[-1]} slots", trip, "ms", waits),
        Plot("lined_up_speed", f"Tasks of 10 ms on {SLOTS[-1]} slots", trip, "tasks/s", speeds),
    )
