"""Commands of scenarios for callers, rules and tokens, and for submitted tasks and roles.

`secured` begins a scenario with callers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from croupier.master.core import calls
from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, TasksReturned
from croupier.master.core.framework_commands import OperatorKill, TeardownFramework
from croupier.master.core.policy_commands import (
    AddMember,
    PolicyChange,
    RemoveMember,
    RemoveRule,
    SetRule,
    UpdatePolicy,
)
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.step import Command
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.model.attributes import Constraint, parse_attributes
from croupier.model.attributes import equals as is_equal
from croupier.model.demand import Placement
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import Principal
from croupier.model.roles import RoleSettings
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.secured_world import NOW_MS, SecuredWorld, caller, rule, token
from tests.harness.world import World, make_task


class Commands:
    """What a `Story` and its parts share."""

    world: World
    _out: list[str]
    _sessions: dict[str, SessionId]
    _names: dict[str, str]
    _ids: dict[str, str]

    def _with_names(self, text: str) -> str:
        """Return text with the names that a scenario gives, instead of ids."""
        for known, name in self._names.items():
            text = text.replace(known, name)
        return text


class AccessCommands(Commands):
    """The part of a `Story` with authentication on."""

    @property
    def _secured(self) -> SecuredWorld:
        assert isinstance(self.world, SecuredWorld), "begin the scenario with `secured`"
        return self.world

    def _do_policy(self, plain: list[str], options: dict[str, str]) -> None:
        """Change the policy: `policy rule NAME SUBJECT ACTION,... OBJECT`, and others."""
        kind, rest = plain[0], plain[1:]
        change: PolicyChange
        match kind:
            case "rule":
                change = SetRule(rule(" ".join(rest)))
            case "unrule":
                change = RemoveRule(rest[0])
            case "member":
                change = AddMember(rest[0], rest[1])
            case _:
                change = RemoveMember(rest[0], rest[1])
        self._ask(UpdatePolicy(1, (change,), NOW_MS, caller=self._by(options, "admin")))

    def _do_token(self, plain: list[str], options: dict[str, str]) -> None:
        name = plain[1] if len(plain) > 1 else ""
        kind = TokenKind.CLIENT if name else TokenKind.JOIN
        more: dict[str, object] = {}
        if "uses" in options:
            more["uses_left"] = int(options["uses"])
        if "attributes" in options:
            more["attributes"] = tuple(options["attributes"].split(","))
        made = token(plain[0], name, kind, **more)
        self._ask(CreateToken(1, made, NOW_MS, self._by(options, "admin")))

    def _do_revoke(self, plain: list[str], options: dict[str, str]) -> None:
        own = TokenId(options.get("with", ""))
        by = self._by(options, "admin")
        self._ask(RevokeToken(1, TokenId(plain[0]), NOW_MS, by, own))

    def _do_join(self, plain: list[str], options: dict[str, str]) -> None:
        """Join an agent: `join AGENT TOKEN OWN_TOKEN [attributes]`."""
        agent, join, own = plain[:3]
        attributes = parse_attributes(plain[3] if len(plain) > 3 else "")
        ids = (TokenId(join), AgentId(agent), TokenId(own))
        self._ask(JoinAgent(1, *ids, own * 8, attributes, NOW_MS))

    def _do_operator(self, plain: list[str], options: dict[str, str]) -> None:
        """Execute a command of a caller: `operator WHO kill|teardown|gone|weight OBJECT`."""
        by, target = caller(plain[0]), plain[2]
        known = self._ids.get(target, target)
        commands: dict[str, Command] = {
            "kill": OperatorKill(1, TaskId(target), FrameworkId(""), None, by),
            "teardown": TeardownFramework(1, FrameworkId(known), caller=by),
            "gone": OperateAgent(1, known, MarkGone(), caller=by),
            "weight": UpdateRoles(1, (_weight(target),), caller=by),
        }
        self._ask(commands[plain[1]])

    def _by(self, options: dict[str, str], name: str) -> Principal:
        return caller(options.get("by", name))

    def _ask(self, command: Command) -> None:
        answer = self._secured.ask(command)
        text = self._with_names(str(answer)) if isinstance(answer, CroupierError) else ""
        self._out.append(f"{type(answer).__name__}: {text}" if text else "done")


def _weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (RolePart.WEIGHT,))


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


class TaskCommands(Commands):
    """The part of a `Story` about submitted tasks."""

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
