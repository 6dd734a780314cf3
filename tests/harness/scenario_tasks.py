"""Commands of scenarios for submitted tasks, and for roles of a framework."""

from __future__ import annotations

import re
from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, TasksReturned
from croupier.model.attributes import Constraint, parse_attributes
from croupier.model.attributes import equals as is_equal
from croupier.model.demand import Placement
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.world import World, make_task


def task_names(words: list[str]) -> list[str]:
    """Return the names of tasks; `t1..3` stands for t1, t2 and t3."""
    found: list[str] = []
    for word in words:
        span = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)", word)
        numbers = range(int(span[2]), int(span[3]) + 1) if span else ()
        found += [f"{span[1]}{number}" for number in numbers] if span else [word]
    return found


def _constraints(text: str) -> tuple[Constraint, ...]:
    return tuple(is_equal(name, str(value)) for name, value in parse_attributes(text).items())


class TaskCommands:
    """The part of a `Story` about submitted tasks."""

    world: World
    _out: list[str]
    _sessions: dict[str, SessionId]
    _names: dict[str, str]
    _ids: dict[str, str]

    def _do_submit(self, plain: list[str], options: dict[str, str]) -> None:
        resources = options.get("each", "cpus:1;mem:1GB")
        tasks = tuple(make_task(name, resources) for name in task_names(plain[1:]))
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
        times = {
            TaskState.STARTING: 1000,
            TaskState.RUNNING: 1001,
            TaskState.FINISHED: 1000 + int(options.get("ms", 10)),
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

    def _do_use(self, plain: list[str], options: dict[str, str]) -> None:
        """Print what each role holds of the agents, in offers and in tasks."""
        used = self.world.state.allocator.queries.used_by_role()
        for role, amounts in sorted(used.items()):
            text = ";".join(f"{name}:{milli / 1000:g}" for name, milli in amounts.items())
            self._out.append(f"{role} uses {text or 'nothing'}")
