"""What a framework asks for, drawn at random: tasks, groups, gangs, executors, holds, volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from croupier.master.core import calls
from croupier.master.core.messages import Offered
from croupier.model.demand import Placement
from croupier.model.devices import DeviceRequest
from croupier.model.executor import MAX_MESSAGE_DATA, ExecutorSpec
from croupier.model.gang import ANY_AGENTS, GangMember, GangPlacement
from croupier.model.ids import AgentId, HoldId, TaskId
from croupier.model.preemption import TaskPreemption
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from croupier.model.task_group import GroupPart, TaskGroup
from croupier.model.volume import VolumeMount
from tests.chaos.virtual import variety

if TYPE_CHECKING:
    from tests.chaos.virtual.framework import FrameworkProcess

# A task that runs until it is killed.
FOR_EVER_S = 1e9
# Times to complete; 0 for no limit.
MOST_MS = (0, 0, 0, 0, 0, 2_000, 9_000)
# Bursts of short tasks that a framework submits.
MOST_BURSTS = 4
MOST_MESSAGES = 12
# Beside those that a framework has anyway.
MOST_WITH_DEVICES = 16
# Of executors, and of tasks in them.
SMALL = "cpus:0.2;mem:20"
SUBMITTED_SIZES = ("cpus:1;mem:100", "cpus:2;mem:100", "cpus:1;mem:300;ports:1")
SIZES = ("cpus:1;mem:100", "cpus:2;mem:100", "cpus:1;mem:300;ports:[1-2]")


class Workload:
    """The tasks and holds of one framework.

    Attributes:
        submits: whether it submits tasks.
    """

    def __init__(self, framework: FrameworkProcess, seed: str) -> None:
        self._framework = framework
        # Random numbers of their own, so that seeds find the same mutants as before.
        self._submitting = Random(crc32(f"{seed}/{framework.name}/submit".encode()))
        self._requeues = variety.preempts(seed)
        self.submits = self._submitting.random() < 0.5
        self._bursting = Random(crc32(f"{seed}/{framework.name}/burst".encode()))
        self._bursts = MOST_BURSTS if self._bursting.random() < 0.7 else 0
        self._grouping = Random(crc32(f"{seed}/{framework.name}/group".encode()))
        self._groups = self._grouping.random() < 0.3
        self._executing = Random(crc32(f"{seed}/{framework.name}/executor".encode()))
        self._has_executors = self._executing.random() < 0.6
        self._talking = Random(crc32(f"{seed}/{framework.name}/talk".encode()))
        self._talks = self._has_executors and self._talking.random() < 0.3
        self._messages = 0
        self._holding = Random(crc32(f"{seed}/{framework.name}/hold".encode()))
        self._holds = self._holding.random() < 0.3
        self._storing = Random(crc32(f"{seed}/{framework.name}/volume".encode()))
        # In some worlds only, so that most seeds find the same mutants as before.
        self._stores = crc32(seed.encode()) % 4 == 0 and self._storing.random() < 0.7
        self._ganging = Random(crc32(f"{seed}/{framework.name}/gang".encode()))
        self._has_gangs = crc32(seed.encode()) % 4 == 1 and self._ganging.random() < 0.8
        self._having = Random(crc32(f"{seed}/{framework.name}/devices".encode()))
        self._has_devices = variety.inventory(seed, framework.name) is not None
        self._volumes: dict[HoldId, AgentId] = {}

    def begin(self) -> None:
        """Submit bursts, groups and gangs, and send messages, from now on."""
        self._framework.later(1.5, self.burst)
        if self._groups:
            self._framework.later(0.7, self.group)
        if self._has_gangs:
            self._framework.later(0.9, self.gang)
        if self._talks:
            self._framework.later(1.0, self.talk)
        if self._has_devices:
            self._framework.later(0.5, self.use_devices)

    def submit(self) -> None:
        """Submit some tasks, and withdraw others at times; then wait."""
        framework = self._framework
        random, most = self._submitting, framework.habits.tasks - framework.named
        if framework.may_submit:
            number = min(random.randint(0, 4), most)
            size = Resources.parse(random.choice(SUBMITTED_SIZES))
            known = sorted(self._volumes)
            tasks = tuple(
                self._requeued(self._with_volume(self.task(size), known)) for _ in range(number)
            )
            if tasks:
                framework.submitted |= {task.task_id for task in tasks}
                bound = random.choice((None, None, 1))
                framework.call(calls.Submit(tasks, placement=Placement(max_per_agent=bound)))
            if framework.submitted and random.random() < 0.2:
                framework.call(calls.Withdraw((random.choice(sorted(framework.submitted)),)))
        framework.later(random.uniform(0.5, 5.0), self.submit)

    def burst(self) -> None:
        """Submit many short tasks of one shape, to be lined up; withdraw or kill some."""
        framework = self._framework
        random = self._bursting
        if self._bursts and framework.may_submit:
            self._bursts -= 1
            size = Resources.parse(random.choice(SUBMITTED_SIZES[:2]))
            lasts = random.choice((0.02, 0.1, 0.4))
            tasks = []
            for _ in range(random.randint(8, 24)):
                task_id = framework.new_id("b")
                command = Command(shell=f"{lasts * random.uniform(0.5, 1.5):.3f} 0 1")
                tasks.append(TaskInfo(task_id, command, size, grace_ms=200))
            framework.submitted |= {task.task_id for task in tasks}
            framework.call(calls.Submit(tuple(tasks)))
            if random.random() < 0.5:
                chosen = random.choice(tasks).task_id
                framework.later(random.uniform(0.0, 1.0), lambda: framework.kill(chosen))
            if random.random() < 0.5:
                named = tuple(task.task_id for task in random.sample(tasks, 3))
                framework.later(random.uniform(0.0, 1.0), lambda: framework.withdraw(named))
        if self._bursts:
            framework.later(random.uniform(0.5, 4.0), self.burst)

    def gang(self) -> None:
        """Submit a gang; kill or withdraw one of it at times."""
        framework, random = self._framework, self._ganging
        if framework.may_submit:
            placement = random.choice((ANY_AGENTS, ANY_AGENTS, GangPlacement(spread="host")))
            parts = [random.choice((GroupPart.MEMBER, GroupPart.SIDECAR)) for _ in range(3)]
            parts = [GroupPart.LEADER, *parts[: random.randint(0, 3)]]
            if random.random() < 0.6:
                parts = [GroupPart.MEMBER] * random.randint(2, 4)
            tasks: list[TaskInfo] = []
            for rank, part in enumerate(parts):
                task_id = framework.new_id("m")
                size = Resources.parse(random.choice(SUBMITTED_SIZES))
                lasts = random.choice((0.0, 0.1, 1.0, 8.0)) * random.uniform(0.5, 1.5)
                code, heeds = random.choice((0, 0, 0, 1)), random.choice((1, 1, 0))
                command = Command(shell=f"{lasts:.3f} {code} {heeds}")
                gang_id = f"{tasks[0].task_id if tasks else task_id}.gang"
                member = GangMember(gang_id, rank, len(parts), part, placement)
                member = replace(member, restarts=crc32(gang_id.encode()) % 4)
                tasks.append(TaskInfo(task_id, command, size, grace_ms=200, gang=member))
            chosen = random.choice(tasks).task_id
            framework.submitted |= {task.task_id for task in tasks}
            framework.call(calls.Submit(tuple(tasks)))
            if random.random() < 0.3:
                framework.later(random.uniform(0.0, 3.0), lambda: framework.kill(chosen))
            elif random.random() < 0.2:
                framework.later(random.uniform(0.0, 1.0), lambda: framework.withdraw((chosen,)))
        framework.later(random.uniform(1.0, 6.0), self.gang)

    def use_devices(self) -> None:
        """Submit tasks with devices, or with parts of one."""
        framework, random = self._framework, self._having
        if framework.may_submit and framework.named < framework.habits.tasks + MOST_WITH_DEVICES:
            number, amount = random.randint(1, 4), random.choice(("0.25", "0.5", "1", "1", "2"))
            asked = DeviceRequest(same=random.choice(("", "nvlink")) if float(amount) >= 1 else "")
            size = Resources.parse(f"{SMALL};gpus:{amount}")
            tasks = tuple(
                self._requeued(replace(self.task(size), devices=asked)) for _ in range(number)
            )
            framework.submitted |= {task.task_id for task in tasks}
            framework.call(calls.Submit(tasks))
        framework.later(random.uniform(0.5, 4.0), self.use_devices)

    def group(self) -> None:
        """Submit a group, at times with a task that is refused; kill or withdraw one of it."""
        framework = self._framework
        random = self._grouping
        if framework.may_submit:
            tasks = []
            for _ in range(random.randint(1, 4)):
                task_id = framework.new_id("g")
                size = Resources.parse(random.choice(SUBMITTED_SIZES))
                lasts = random.choice((0.0, 0.1, 1.0, 8.0)) * random.uniform(0.5, 1.5)
                if random.random() < 0.2:
                    lasts = FOR_EVER_S
                    framework.endless.add(task_id)
                code, heeds = random.choice((0, 0, 1)), random.choice((1, 1, 0))
                command = Command(shell=f"{lasts:.3f} {code} {heeds}")
                tasks.append(TaskInfo(task_id, command, size, grace_ms=200))
            chosen = random.choice(tasks).task_id
            framework.submitted |= {task.task_id for task in tasks}
            framework.call(calls.Submit(self._grouped(tuple(tasks))))
            if random.random() < 0.3:
                framework.later(random.uniform(0.0, 3.0), lambda: framework.kill(chosen))
            elif random.random() < 0.2:
                framework.later(random.uniform(0.0, 1.0), lambda: framework.withdraw((chosen,)))
        framework.later(random.uniform(1.0, 6.0), self.group)

    def talk(self) -> None:
        """Send a message to an executor, or at times one that must be refused."""
        framework = self._framework
        random, executors = self._talking, list(framework.executors.values())
        if framework.may_submit and executors:
            self._messages += 1
            data = f"{framework.client_id} {self._messages}".encode()
            kind, task_id = random.random(), random.choice(executors)
            if kind < 0.05:
                data = data.ljust(MAX_MESSAGE_DATA + 1)
            elif kind < 0.2:
                # Mostly one of another framework, or no executor.
                task_id = random.choice(list(framework.judge.histories))
            framework.call(calls.SendMessage(task_id, data))
        if self._messages < MOST_MESSAGES:
            framework.later(random.choice((0.01, 0.3, 1.0, 3.0)), self.talk)

    def chosen(self, offered: Offered, most: int) -> tuple[TaskInfo, ...]:
        """Return tasks for an offer, at most `most` and those in an executor."""
        room, first = offered.resources, list[TaskInfo]()
        if self._has_executors and self._executing.random() < 0.5:
            first = self._in_executor(offered)
            for task in first:
                room = room - task.resources
        if self._has_devices and self._having.random() < 0.5:
            size = Resources.parse(f"{SMALL};gpus:{self._having.choice(('0.25', '0.5', '1'))}")
            if size <= room:
                room = room - size
                first.append(replace(self.task(size), devices=DeviceRequest()))
        tasks = (*first, *self._tasks(room, self._framework.random.randint(1, min(most, 4))))
        # A task in an executor is in no group.
        if tasks and self._groups and self._grouping.random() < 0.3 and not first:
            return self._grouped(tasks)
        return tasks

    def task(self, size: Resources) -> TaskInfo:
        """Return a new task of this size."""
        framework = self._framework
        task_id = framework.new_id()
        habits, random = framework.habits, framework.random
        lasts = random.choice((0.0, 0.05, 0.5, 3.0, 10.0, 25.0)) * random.uniform(0.5, 1.5)
        if random.random() < habits.endless:
            lasts = FOR_EVER_S
            framework.endless.add(task_id)
        code = random.choice((0, 0, 0, 1, 7))
        heeds = 0 if random.random() < habits.stubborn else 1
        if random.random() < habits.kills:
            framework.later(random.uniform(0.0, 15.0), lambda: framework.kill(task_id))
        command = Command(shell=f"{lasts:.3f} {code} {heeds}")
        grace_ms = random.choice((0, 200, 3000))
        # Not drawn, so that seeds find the same mutants as before.
        most_ms = MOST_MS[crc32(task_id.encode()) % len(MOST_MS)]
        return TaskInfo(task_id, command, size, grace_ms=grace_ms, max_completion_ms=most_ms)

    def _tasks(self, room: Resources, most: int) -> tuple[TaskInfo, ...]:
        framework = self._framework
        tasks = []
        for _ in range(most):
            size = Resources.parse(framework.random.choice(SIZES))
            if not size <= room:
                continue
            room = room - size
            tasks.append(self.task(size))
        return tuple(tasks)

    def _in_executor(self, offered: Offered) -> list[TaskInfo]:
        """Return tasks in an executor on the offer's agent, and the executor if there is none."""
        framework = self._framework
        random, room = self._executing, offered.resources
        size = Resources.parse(SMALL)
        agent_id = offered.agent.agent_id
        tasks: list[TaskInfo] = []
        executor = framework.executors.get(agent_id, TaskId(""))
        for _ in range(random.randint(1, 5)):
            if not size <= room or framework.named >= framework.habits.tasks:
                break
            room = room - size
            task_id = framework.new_id("x")
            grace_ms = random.choice((0, 200, 3000))
            heeds = 0 if random.random() < 0.1 else 1
            if not executor or random.random() < 0.05:
                executor = framework.executors[agent_id] = task_id
                lasts = random.choice((3.0, 20.0, FOR_EVER_S, FOR_EVER_S))
                command = Command(shell=f"{lasts} {random.choice((0, 1))} {heeds}")
                data = b"silent" if random.random() < 0.1 else b""
                spec = ExecutorSpec(3_000, 500)
                task = TaskInfo(task_id, command, size, grace_ms=grace_ms, executor=spec, data=data)
            else:
                lasts = random.choice((0.0, 0.05, 0.5, 3.0, FOR_EVER_S))
                data = f"{lasts} {random.choice((0, 0, 1))} {heeds}".encode()
                most_ms = random.choice(MOST_MS)
                task = TaskInfo(
                    task_id, Command(), size, grace_ms=grace_ms, max_completion_ms=most_ms,
                    executor_id=executor, data=data,
                )  # fmt: skip
            if lasts == FOR_EVER_S:
                framework.endless.add(task_id)
            if random.random() < 0.1:
                framework.later(random.uniform(0.0, 10.0), partial(framework.kill, task_id))
            tasks.append(task)
        return tasks

    def _grouped(self, tasks: tuple[TaskInfo, ...]) -> tuple[TaskInfo, ...]:
        """Return the tasks as one group; at times one of them fits no agent."""
        random, group_id = self._grouping, f"{tasks[0].task_id}.group"
        parts = random.choices((GroupPart.MEMBER, GroupPart.SIDECAR), (3, 1), k=len(tasks))
        parts[random.randrange(len(tasks))] = random.choice((GroupPart.MEMBER, GroupPart.LEADER))
        grouped = [
            replace(task, group=TaskGroup(group_id, part))
            for task, part in zip(tasks, parts, strict=True)
        ]
        if random.random() < 0.2:
            at = random.randrange(len(grouped))
            bad = grouped[at].resources + Resources(ranges={"lots": ((1, 9),)})
            grouped[at] = replace(grouped[at], resources=bad)
        return tuple(grouped)

    def with_hold(self, accept: calls.Accept, offered: Offered) -> calls.Accept:
        """Return the call, at times with a hold, or with the release of an earlier one."""
        framework = self._framework
        random = self._holding
        if not self._holds or random.random() < 0.5:
            return accept
        if framework.held and (offered.hold_id or random.random() < 0.3):
            return replace(
                accept, releases=(framework.held.pop(random.randrange(len(framework.held))),)
            )
        hold_id = HoldId(f"{accept.tasks[0].task_id}.hold")
        ttl_ms = random.choice((0, 700, 5_000, 20_000))
        size = Resources.parse(random.choice(SIZES[:2]))
        framework.held.append(hold_id)
        hold = calls.MakeHold(hold_id, size, ttl_ms, for_role=random.random() < 0.4)
        return replace(accept, holds=(hold,))

    def with_volumes(self, accept: calls.Accept, offered: Offered) -> calls.Accept:
        """Return the call with tasks that have volumes, at times with one more or one less."""
        framework, random = self._framework, self._storing
        if not self._stores:
            return accept
        volume_id, chance = self._any_volume(), random.random()
        if volume_id in framework.held and chance < 0.2:
            framework.held.remove(volume_id)
            accept = replace(accept, releases=(*accept.releases, volume_id))
        elif volume_id not in framework.held and chance < 0.9 and not offered.hold_id:
            framework.held.append(volume_id)
            self._volumes[volume_id] = offered.agent.agent_id
            volume = calls.MakeHold(volume_id, Resources.parse("disk:1"), volume=True)
            accept = replace(accept, holds=(*accept.holds, volume))
        here = [key for key, place in self._volumes.items() if place == offered.agent.agent_id]
        return replace(accept, tasks=tuple(self._with_volume(task, here) for task in accept.tasks))

    def _requeued(self, task: TaskInfo) -> TaskInfo:
        """Return the task, in some worlds mostly as one that runs again when it is preempted."""
        if not self._requeues or crc32(task.task_id.encode()) % 4 == 0:
            return task
        return replace(task, preemption=TaskPreemption(requeue=True))

    def _with_volume(self, task: TaskInfo, likely: Sequence[HoldId]) -> TaskInfo:
        """Return the task, at times with a `likely` volume, or one that it may not have."""
        random = self._storing
        if not self._stores or task.executor_id or random.random() < 0.4:
            return task
        is_likely = likely and random.random() < 0.8
        volume_id = random.choice(likely) if is_likely else self._any_volume()
        return replace(task, volumes=(VolumeMount(volume_id, "v"),))

    def _any_volume(self) -> HoldId:
        """Return one of few ids, which are used again and again; some are of another framework."""
        name = self._framework.name if self._storing.random() < 0.9 else "framework-1"
        return HoldId(f"{name}.v{self._storing.randint(1, 2)}")
