"""A service's controller core in virtual time, with agents that lose, crash and delay tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from random import Random

from croupier.apps.job_file.task_spec import TaskSpec
from croupier.apps.service.core import events
from croupier.apps.service.core.decide import decide, resume
from croupier.apps.service.core.instance import Stop
from croupier.apps.service.core.placement import Room, Template, place
from croupier.apps.service.core.rules import Check, Health, Rules, Version
from croupier.apps.service.core.state import Service
from croupier.apps.service.state_dir import from_json, to_json
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, TaskState, TaskStatus

UNIT = Resources.parse("cpus:1;mem:64MB")
GOOD, CRASHES, SICK = "good", "crashes", "sick"


@dataclass
class Machine:
    """An agent with room for some instances."""

    agent_id: str
    rack: str
    room: int
    is_lost: bool = False


@dataclass
class RealTask:
    """A task as its agent knows it."""

    task_id: str
    agent_id: str
    version: int
    state: TaskState = TaskState.STAGING
    ends_at: float | None = None
    is_hung: bool = False


def apply_status(service: Service, status: TaskStatus, now: float) -> None:
    """Apply a status as the engine tells it."""
    has_ended = status.state.is_terminal or status.state is TaskState.UNKNOWN
    apply = events.on_end if has_ended else events.on_live
    apply(service, status, now)


@dataclass
class World:
    """Steps the core, and checks its rules after each decision."""

    random: Random
    rules: Rules
    check: Check = Check.HTTP
    calm: bool = False
    now: float = 1000.0
    machines: list[Machine] = field(default_factory=list)
    tasks: dict[str, RealTask] = field(default_factory=dict)
    behaviour: dict[int, str] = field(default_factory=dict)
    mail: list[tuple[float, TaskStatus]] = field(default_factory=list)
    starts: int = 0

    def __post_init__(self) -> None:
        self.health = Health(self.check, grace_s=5, interval_s=2, timeout_s=1, failures=2)
        first = Version(1, "d1", self.health)
        self.service = Service.create("web", "abc", self.rules, first, self.now)
        self.behaviour[1] = GOOD
        if not self.machines:
            self.machines = [Machine(f"a{n}", f"r{n % 3}", 12) for n in range(4)]

    # What the controller is told.

    def apply(self, digest: str, behaviour: str) -> None:
        self.behaviour[self.service.next_version] = behaviour
        events.apply(self.service, self.rules, Version(1, digest, self.health), self.now)

    def scale(self, instances: int) -> None:
        events.scale(self.service, instances)
        self.rules = self.service.rules

    def restart_controller(self) -> None:
        """Kill the controller; updates on their way are lost, and reconciled."""
        self.service = from_json(json.loads(json.dumps(to_json(self.service))))
        resume(self.service, self.now)
        self.mail.clear()
        self.service.hold_until = self.now + 0.5
        self.reconcile()

    def reconcile(self) -> None:
        for task_id in list(self.service.instances):
            task = self.tasks.get(task_id)
            self._send(task_id, TaskState.UNKNOWN if task is None else task.state, delay=0.1)

    # Time.

    def step(self) -> None:
        self.now += self.random.choice((0.1, 0.3, 1.0, 2.0))
        self._deliver()
        self._run_tasks()
        self._check()
        self._offer()
        self._decide()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step()

    def _decide(self) -> None:
        service = self.service
        was_up = {s.index for s in service.wanted_slots() if service.is_up(s.index, self.now)}
        available = {
            each.task_id
            for each in service.instances.values()
            if service.is_available(each, self.now)
        }
        kills = decide(service, self.now)
        ended = {
            each.slot
            for each in service.instances.values()
            if each.task_id in available and each.stop in (Stop.OUTDATED, Stop.SURPLUS)
        }
        most = service.rules.update.max_unavailable
        for slot in service.wanted_slots():
            if slot.index in ended & was_up and not service.is_up(slot.index, self.now):
                assert service.unavailable(self.now) <= most, f"slot {slot.index} was ended"
        self._check_copies()
        for task_id in kills:
            self._kill(task_id)

    def _check_copies(self) -> None:
        surging = 0
        for slot in self.service.wanted_slots():
            live = [
                i
                for i in self.service.members(slot.index)
                if i.unreachable_since is None and not i.is_stopping
            ]
            assert len(live) <= 2, live
            surging += len(live) == 2
        assert surging <= self.rules.update.surge

    # The cluster.

    def lose(self, machine: Machine) -> None:
        machine.is_lost = True
        for task in self._on(machine):
            task.state = TaskState.UNREACHABLE
            self._send(task.task_id, TaskState.UNREACHABLE)

    def find(self, machine: Machine) -> None:
        machine.is_lost = False
        for task in self._on(machine):
            task.state = TaskState.RUNNING
            self._send(task.task_id, TaskState.RUNNING)

    def crash(self, task: RealTask) -> None:
        self._end(task, TaskState.FAILED)

    def _on(self, machine: Machine) -> list[RealTask]:
        return [task for task in self.tasks.values() if task.agent_id == machine.agent_id]

    def _machine(self, agent_id: str) -> Machine:
        return next(each for each in self.machines if each.agent_id == agent_id)

    def _offer(self) -> None:
        rooms = []
        for number, machine in enumerate(self.machines):
            free = machine.room - len(self._on(machine))
            if machine.is_lost or free < 1 or self.random.random() < 0.3:
                continue
            first = 31000 + 100 * number
            amount = Resources.parse(f"cpus:{free};mem:{64 * free}MB;ports:[{first}-{first + 99}]")
            spread = self.rules.spread
            where = machine.rack if spread else machine.agent_id
            rooms.append(Room(f"o{number}", machine.agent_id, "127.0.0.1", where, amount))
        templates = dict.fromkeys(self.service.versions, Template(TaskSpec(resources=UNIT), 1))
        placed = place(self.service, rooms, templates, self.now)
        for instance, _ in chain.from_iterable(placed.values()):
            task_id = instance.task_id
            assert instance.ports
            if not self.calm and self.random.random() < 0.05:
                events.on_refused(
                    self.service, task_id, "the offer has ended", self.now, is_fault=False
                )
                continue
            assert task_id not in self.tasks, "an id is used twice"
            self.tasks[task_id] = RealTask(task_id, instance.agent_id, instance.version)
            self.starts += 1

    def _run_tasks(self) -> None:
        for task in list(self.tasks.values()):
            if self._machine(task.agent_id).is_lost:
                continue
            if task.state is TaskState.STAGING:
                task.state = TaskState.RUNNING
                self._send(task.task_id, TaskState.RUNNING)
                if self.behaviour.get(task.version) == CRASHES:
                    task.ends_at = self.now + self.random.uniform(0.0, 2.0)
            elif task.ends_at is not None and self.now >= task.ends_at:
                killed = task.state is TaskState.KILLING
                self._end(task, TaskState.KILLED if killed else TaskState.FAILED)

    def _check(self) -> None:
        for instance in list(self.service.instances.values()):
            health = self.service.health_of(instance)
            if instance.is_check_due(health, self.now):
                instance.is_checking = True
                task = self.tasks.get(instance.task_id)
                passed = task is not None and self.is_serving(task)
                events.on_check(
                    self.service, instance.task_id, passed=passed, text="checked", now=self.now
                )

    def is_serving(self, task: RealTask) -> bool:
        """Return whether it answers checks."""
        runs = task.state in (TaskState.RUNNING, TaskState.UNREACHABLE)
        return runs and not task.is_hung and self.behaviour.get(task.version) != SICK

    def _kill(self, task_id: str) -> None:
        task = self.tasks.get(task_id)
        if task is None:
            self._send(task_id, TaskState.UNKNOWN)
        elif not self._machine(task.agent_id).is_lost:
            task.state = TaskState.KILLING
            task.ends_at = self.now + self.random.uniform(0, 3)

    def _end(self, task: RealTask, state: TaskState) -> None:
        del self.tasks[task.task_id]
        self._send(task.task_id, state)

    def _send(self, task_id: str, state: TaskState, delay: float | None = None) -> None:
        wait = self.random.uniform(0, 1) if delay is None else delay
        last = max((at for at, each in self.mail if each.task_id == task_id), default=0.0)
        status = TaskStatus(
            FrameworkId("f"), TaskId(task_id), AgentId("a"), state, reason=Reason.NONE
        )
        self.mail.append((max(self.now + wait, last), status))

    def _deliver(self) -> None:
        due = [each for each in self.mail if each[0] <= self.now]
        self.mail = [each for each in self.mail if each[0] > self.now]
        for _, status in sorted(due, key=lambda each: each[0]):
            apply_status(self.service, status, self.now)
