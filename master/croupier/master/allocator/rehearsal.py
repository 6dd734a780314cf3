"""Rehearsals: the expected ends of running tasks, played on a copy of the allocator.

Rule: the copy deals by the same policy, settings and rules as the allocator itself, and nothing
reaches the original. A rehearsal is one possible course of events: `WALKS` of them, each with other
draws of the durations, tell when a task may start. The draws are a fixed sequence, so the same
picture gives the same answer.

What a rehearsal leaves out: tasks that are yet to be submitted, preemption, holds that end, agents
that come and go, and declined offers. Frameworks launch all that they demand, as soon as they are
dealt it; those that declare no demand launch nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain
from math import inf

from croupier.master.allocator.allocator import Allocator
from croupier.master.allocator.grant import GangPlace, Grant
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.picture import Picture, Place, Running, Waiting
from croupier.master.allocator.policies import make
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.model.devices import Inventory, slots_as_resources
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources

WALKS = 10
# Ends and wake-ups in one rehearsal.
MOST_EVENTS = 3_000
# The draws are the multiples of a fraction near the golden ratio, modulo a prime: they fill the
# range evenly, and no two walks have the same for one task.
_STEP, _MODULUS = 617, 997
# Agents or tasks that are copied between two moments for other work.
_SLICE = 20
# Checks of frameworks between two such moments.
_CHECKS = 50


@dataclass(frozen=True, slots=True)
class Target:
    """The unit whose start is to be foretold: the one of this number, counted from 1.

    `what` is the shape of submitted tasks, or the unit of a declared demand.
    """

    framework_id: FrameworkId
    role: Role
    what: Shape | Resources
    number: int = 1


@dataclass(slots=True)
class Course:
    """What came of one rehearsal.

    Attributes:
        starts: when each target starts, in seconds from now; those that do not are absent.
        endless: how many tasks have no known end.
        is_cut: whether it was given up before all had ended.
    """

    starts: dict[Target, float] = field(default_factory=dict)
    endless: int = 0
    is_cut: bool = False


def rehearse(
    picture: Picture, targets: Sequence[Target], walk: int
) -> Generator[None, None, Course]:
    """Play one course of events until all targets have started. Yields for other work."""
    rehearsal = _Rehearsal(picture, targets, walk)
    yield from rehearsal.copy()
    yield from rehearsal.play()
    return rehearsal.course


class _Rehearsal:
    """A copy of the allocator, and the ends to come."""

    def __init__(self, picture: Picture, targets: Sequence[Target], walk: int) -> None:
        self.course = Course()
        self._picture, self._targets = picture, targets
        self._targets_at: dict[tuple[FrameworkId, Role, object], list[Target]] = {}
        for target in targets:
            place = (target.framework_id, target.role, target.what)
            self._targets_at.setdefault(place, []).append(target)
        rules = replace(picture.rules, remembers_misfits=True)
        self._allocator = Allocator(make(picture.policy), rules, picture.settings)
        self._lasts = {each.framework_id: each.lasts for each in picture.frameworks}
        self._inventories: dict[AgentId, Inventory] = {}
        self._lined = Counter(dict(picture.lined))
        self._started: Counter[tuple[FrameworkId, Role, object]] = Counter()
        # (time, number, task); the number keeps equal times in order.
        self._ends: list[tuple[float, int, Running]] = []
        self._draw, self._drawn, self._now = walk * _MODULUS // WALKS, 0, picture.now

    def copy(self) -> Generator[None, None, None]:
        """Copy agents, frameworks and what these hold. Yields for other work."""
        picture = self._picture
        running: dict[AgentId, list[Running]] = {}
        for task in picture.running:
            running.setdefault(task.agent_id, []).append(task)
        steps = chain(
            map(self._add_place, picture.places),
            map(self._add_framework, picture.frameworks),
            map(self._charge, running.values()),
            map(self._connect, picture.frameworks),
        )
        for number, _ in enumerate(steps):
            if number % _SLICE == 0:
                yield
        self._allocator.charges.note_deals(picture.dealt)
        for role, turn in picture.turns.items():
            self._allocator.set_turn(role, turn)

    def _add_place(self, place: Place) -> None:
        if not place.is_active:
            self._allocator.charges.add_absent(place.agent_id, place.total.scalars)
            return
        agent = PooledAgent(place.agent_id, place.total, place.facts, inventory=place.inventory)
        self._allocator.add_pooled(agent)
        if place.inventory is not None:
            self._inventories[place.agent_id] = place.inventory
        for reservation in place.reservations:
            self._allocator.reservations.add(place.agent_id, reservation)

    def _add_framework(self, each: Waiting) -> None:
        self._allocator.add_framework(each.framework_id, each.roles, each.owner)
        for role, held in each.held.items():
            self._allocator.charges.charge_absent(each.framework_id, role, [held])

    def _charge(self, tasks: Sequence[Running]) -> None:
        """Charge tasks of one agent."""
        charges = ((task.framework_id, task.role, task.resources) for task in tasks)
        self._allocator.charges.charge(tasks[0].agent_id, charges)
        for task in tasks:
            self._run(task)

    def _connect(self, each: Waiting) -> None:
        self._allocator.set_demand(each.framework_id, each.demands)
        if not each.demands:
            self._allocator.suppress(each.framework_id)
        for role, shape, count in each.queued:
            self._allocator.queue(each.framework_id, role, shape, count)
        self._allocator.connect(each.framework_id, True)

    def play(self) -> Generator[None, None, None]:
        """Deal, and end tasks in the order of their ends."""
        wanted = len(self._targets)
        for number in range(MOST_EVENTS):
            yield from self._deal()
            if len(self.course.starts) == wanted or not self._step():
                return
            if number % 20 == 0:
                yield
        self.course.is_cut = True

    def _step(self) -> bool:
        """Go to the next end or wake-up; return whether there is one."""
        wakes_at = self._allocator.next_wakeup()
        if not self._ends:
            # Without an end to come, a wake-up may still free what was reserved.
            if wakes_at is None or wakes_at <= self._now:
                return False
            self._now = wakes_at
        elif wakes_at is not None and self._now < wakes_at < self._ends[0][0]:
            self._now = wakes_at
        else:
            self._now, _, task = heappop(self._ends)
            self._end(task)
        self._allocator.wake(self._now)
        return True

    def _end(self, task: Running) -> None:
        line = (task.agent_id, task.framework_id, task.role)
        if self._lined[line]:
            # Its successor takes its place.
            self._lined[line] -= 1
            self._run(replace(task, lasts=self._lasts[task.framework_id][task.role]))
            return
        place = (task.framework_id, task.role, task.agent_id)
        self._allocator.charges.release(*place, task.resources)

    def _deal(self) -> Generator[None, None, None]:
        while self._allocator.has_dirty_agents:
            for grant in self._allocator.run(self._now, _CHECKS):
                self._launch(grant)
            yield

    def _launch(self, grant: Grant) -> None:
        lasts = self._lasts[grant.framework_id][grant.role]
        declared_ms = 0 if grant.shape is None else grant.shape.max_completion_ms
        at_most_s = declared_ms / 1000 if declared_ms else inf
        left, tasks = grant.resources, list(grant.places)
        inventory, devices = self._inventories.get(grant.agent_id), iter(grant.devices)
        for unit, number in () if tasks else grant.units:
            for _ in range(number):
                carved = unit.carve(left, 1)
                if inventory is not None:
                    slots = slots_as_resources(next(devices, ()))
                    carved = carved + slots if slots else inventory.certain(carved, left) or carved
                left = left - carved
                tasks.append(GangPlace(grant.agent_id, carved))
        # The members of a gang are counted on their agents already.
        counted = 0 if grant.places else 1
        owner = grant.framework_id, grant.role
        for agent_id, amount in tasks:
            self._allocator.charges.launch(*owner, agent_id, amount, tasks=counted)
            self._run(Running(agent_id, grant.framework_id, grant.role, amount, lasts, at_most_s))
        for unit, number in grant.units:
            self._note(grant, unit, number)
        if grant.shape is None:
            launched = [amount for _, amount in tasks]
            self._allocator.settle_offers(*grant.place, grant.units, launched, left)
        else:
            self._allocator.launched(grant)

    def _note(self, grant: Grant, unit: Resources, number: int) -> None:
        """Note the start of units, if a target is among them."""
        key = (grant.framework_id, grant.role, grant.shape or unit)
        before = self._started[key]
        self._started[key] += number
        for target in self._targets_at.get(key, ()):
            if before < target.number <= before + number:
                self.course.starts[target] = self._now - self._picture.now

    def _run(self, task: Running) -> None:
        """Draw the time that the task runs on."""
        self._drawn += 1
        draw = (self._drawn * _STEP + self._draw) % _MODULUS
        drawn_s = task.lasts((2 * draw + 1) * 500 // _MODULUS)
        left_s = min(inf if drawn_s is None else drawn_s, task.at_most_s)
        if left_s == inf:
            self.course.endless += 1
        else:
            heappush(self._ends, (self._now + left_s, self._drawn, task))
