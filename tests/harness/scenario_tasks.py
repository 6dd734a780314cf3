"""Commands of scenarios for submitted tasks and holds."""

from __future__ import annotations

import re
from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.events import AgentReported, TasksReturned
from croupier.master.core.on_hold import holds_and_orphans
from croupier.model.attributes import Constraint, parse_attributes
from croupier.model.attributes import equals as is_equal
from croupier.model.demand import Placement
from croupier.model.gang import GangPlacement
from croupier.model.ids import FrameworkId, HoldId, Role, TaskId
from croupier.model.preemption import TaskPreemption, parse_checkpoint_signal
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from tests.harness.scenario_commands import Commands
from tests.harness.world import (
    in_gang,
    in_group,
    make_task,
    with_devices,
    with_executor,
    with_volumes,
)


def task_names(words: list[str]) -> list[str]:
    """Return the names of tasks; `t1..3` stands for t1, t2 and t3."""
    found: list[str] = []
    for word in words:
        span = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", word)
        numbers = range(int(span[2]), int(span[3]) + 1) if span else ()
        found += [f"{span[1]}{number}" for number in numbers] if span else [word]
    return found


def preemption_of(options: dict[str, str]) -> TaskPreemption:
    """Take what a command says of the preemption of its tasks."""
    min_run_ms = round(float(options.pop("min_run", 0)) * 1000)
    requeue = options.pop("requeue", "no") == "yes"
    signal = parse_checkpoint_signal(options.pop("checkpoint", ""))
    return TaskPreemption(min_run_ms, requeue, signal)


def _constraints(text: str) -> tuple[Constraint, ...]:
    return tuple(is_equal(name, str(value)) for name, value in parse_attributes(text).items())


def as_gang(options: dict[str, str], tasks: tuple[TaskInfo, ...]) -> tuple[TaskInfo, ...]:
    """Return tasks as a gang; `first` are the resources of rank 0, if it has others."""
    placement = GangPlacement(
        options.get("same", ""), options.get("spread", ""), options.get("pack") == "yes"
    )
    if "first" in options:
        first = replace(tasks[0], resources=Resources.parse(options["first"]))
        tasks = (first, *tasks[1:])
    parts = options["parts"].split(",") if "parts" in options else ()
    restarts = int(options.get("restarts", 0))
    return in_gang(options["gang"], *tasks, parts=parts, placement=placement, restarts=restarts)


class TaskCommands(Commands):
    """The part of a `Story` about submitted tasks."""

    def _do_submit(self, plain: list[str], options: dict[str, str]) -> None:
        resources = options.get("each", "cpus:1;mem:1GB")
        volumes, preemption = options.get("volumes", ""), preemption_of(options)
        tasks = tuple(
            replace(with_volumes(make_task(name, resources), volumes), preemption=preemption)
            for name in task_names(plain[1:])
        )
        tasks = tuple(with_devices(task, options.get("devices", "")) for task in tasks)
        if "group" in options:
            tasks = tuple(in_group(options["group"], task) for task in tasks)
        if "gang" in options:
            tasks = as_gang(options, tasks)
        if "executor" in options:
            tasks = tuple(with_executor(task, options["executor"]) for task in tasks)
        most = int(options["per-agent"]) if "per-agent" in options else None
        placement = Placement(_constraints(options.get("where", "")), most)
        role = Role(options["role"]) if "role" in options else None
        self.world.call(self._sessions[plain[0]], calls.Submit(tasks, role, placement))

    def _do_withdraw(self, plain: list[str], options: dict[str, str]) -> None:
        names = tuple(map(TaskId, task_names(plain[1:])))
        self.world.call(self._sessions[plain[0]], calls.Withdraw(names))

    def _do_suppress(self, plain: list[str], options: dict[str, str]) -> None:
        roles = tuple(map(Role, plain[1:]))
        self.world.call(self._sessions[plain[0]], calls.Suppress(roles))

    def _do_revive(self, plain: list[str], options: dict[str, str]) -> None:
        roles = tuple(map(Role, plain[1:]))
        self.world.call(self._sessions[plain[0]], calls.Revive(roles))

    def _do_tasks(self, plain: list[str], options: dict[str, str]) -> None:
        """Print the tasks of a framework by role and state."""
        framework = self.world.state.frameworks.get(FrameworkId(self._ids[plain[0]]))
        groups: dict[str, list[str]] = {}
        for task in framework.tasks.values() if framework is not None else ():
            groups.setdefault(f"{task.role}: {task.state.name}", []).append(task.task_id)
        self._out += [f"{name} {' '.join(tasks)}" for name, tasks in groups.items()] or ["no tasks"]

    def _do_ran(self, plain: list[str], options: dict[str, str]) -> None:
        """Have a task run for `ms`, and `next` be started in its place."""
        owner, task_id = FrameworkId(self._ids[plain[0]]), TaskId(plain[1])
        task = self.world.state.frameworks[owner].tasks[task_id]
        end = TaskState.FAILED if "failed" in plain else TaskState.FINISHED
        times = {
            TaskState.STARTING: 1000,
            TaskState.RUNNING: 1001,
            end: 1000 + int(options.get("ms", 10)),
        }
        common = (owner, task_id, task.agent_id)
        statuses = tuple(
            TaskStatus(*common, state, Source.EXECUTOR, sequence=number, time_ms=at)
            for number, (state, at) in enumerate(times.items(), 1)
        )
        last = replace(statuses[-1], successor=TaskId(options.get("next", "")))
        session = self._sessions[self._names[task.agent_id]]
        self.world.do(AgentReported(session, (*statuses[:-1], last)))

    def _do_return(self, plain: list[str], options: dict[str, str]) -> None:
        """Have an agent return lined-up tasks: `return AGENT FRAMEWORK TASK ...`."""
        owner = FrameworkId(self._ids[plain[1]])
        keys = tuple((owner, TaskId(name)) for name in task_names(plain[2:]))
        self.world.do(TasksReturned(self._sessions[plain[0]], keys))

    def _do_holds(self, plain: list[str], options: dict[str, str]) -> None:
        """Print where tasks are, as the master knows it."""
        known = self.world.state.frameworks[FrameworkId(self._ids[plain[0]])].tasks
        names = map(TaskId, task_names(plain[1:]))
        self._out.append(", ".join(f"{name} {known[name].hold.value}" for name in names))

    def _do_hold(self, plain: list[str], options: dict[str, str]) -> None:
        """Hold resources of all offers: `hold F h1 cpus:1 [for-role] [volume] [t1=cpus:1]`."""
        session, ttl_s = self._sessions[plain[0]], float(options.pop("ttl", 0))
        hold = calls.MakeHold(
            HoldId(plain[1]),
            Resources.parse(plain[2]),
            round(ttl_s * 1000),
            "for-role" in plain,
            "volume" in plain,
        )
        volumes = options.pop("volumes", "")
        tasks = tuple(
            with_volumes(make_task(task, each), volumes) for task, each in options.items()
        )
        offers = tuple(offer.offer_id for offer in self.world.offers(session))
        self.world.call(session, calls.Accept(offers, tasks, holds=(hold,)))

    def _do_release(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.call(self._sessions[plain[0]], calls.Release(tuple(map(HoldId, plain[1:]))))

    def _do_held(self, plain: list[str], options: dict[str, str]) -> None:
        """Print all holds: of whom, what is unused, and the tasks in them."""
        state = self.world.state
        for hold in holds_and_orphans(state).values():
            agent = state.agents[hold.agent_id]
            tasks = [task.task_id for task in agent.tasks.values() if task.hold_id == hold.hold_id]
            owner = f"framework {hold.framework_id}" if hold.framework_id else f"role {hold.role}"
            free = state.allocator.queries.free(hold.place) if hold.is_pooled else hold.unused
            self._out.append(
                self._with_names(
                    f"{hold.hold_id} of {agent.hostname} for {owner}: {hold.resources},"
                    f" {free or 'nothing'} unused, {' '.join(tasks) or 'no tasks'}"
                )
            )
        self._out = self._out or ["no holds"]

    def _do_use(self, plain: list[str], options: dict[str, str]) -> None:
        """Print what each role holds of the agents, in offers and in tasks."""
        used = self.world.state.allocator.queries.used_by_role()
        for role, amounts in sorted(used.items()):
            text = ";".join(f"{name}:{milli / 1000:g}" for name, milli in amounts.items())
            self._out.append(f"{role} uses {text or 'nothing'}")
