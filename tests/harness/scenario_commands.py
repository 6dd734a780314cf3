"""Commands of scenarios for callers, rules and tokens, and those of operators.

`secured` begins a scenario with callers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format

from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.agent_commands import Deactivate, MarkGone, OperateAgent
from croupier.master.core.effects import Answer, SessionId
from croupier.master.core.framework_commands import OperatorKill, TeardownFramework
from croupier.master.core.policy_commands import (
    AddMember,
    PolicyChange,
    RemoveGroup,
    RemoveMember,
    RemoveRule,
    RestoreKey,
    RevokeKey,
    SetGroup,
    SetRule,
    UpdatePolicy,
)
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart, TaskCounts
from croupier.master.core.step import Command
from croupier.master.core.token_commands import CreateToken, JoinAgent, RevokeToken
from croupier.master.services import lists
from croupier.master.services.paging import Listed
from croupier.master.services.views import WallTime, view_master
from croupier.model.access import KeyId
from croupier.model.attributes import parse_attributes
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import Principal
from croupier.model.roles import RoleSettings, parse_amounts
from croupier.v1 import operator_pb2 as pb
from tests.harness.explained import explained
from tests.harness.role_statuses import role_statuses
from tests.harness.secured_world import NOW_MS, SecuredWorld, caller, rule, token
from tests.harness.world import World


class Commands:
    """What a `Story` and its parts share."""

    world: World
    _out: list[str]
    _sessions: dict[str, SessionId]
    _names: dict[str, str]
    _ids: dict[str, str]

    def _join(self, name: str, session: SessionId, known: str) -> None:
        """Know a peer by the name that the scenario gives it, also in the output so far."""
        self._sessions[name] = session
        self._ids[name] = known
        self._names[known] = name
        # These lines came before the session had a name.
        self._out = [line.replace(f"session {session} ", f"{name} ") for line in self._out]

    def _with_names(self, text: str) -> str:
        """Return text with the names that a scenario gives, instead of ids."""
        for known, name in self._names.items():
            text = text.replace(known, name)
        return text

    def _answered(self, answer: object) -> str:
        match answer:
            case CroupierError():
                return f"{type(answer).__name__}: {self._with_names(str(answer))}"
            case RolesMoved(named, others):
                moved = [
                    f"{was.role} from {was.settings} to {now.settings}, "
                    f"entitled to {was.entitlement} -> {now.entitlement}"
                    for was, now in named
                ]
                moved += [
                    f"also {was.role}, entitled to {was.entitlement} -> {now.entitlement}"
                    for was, now in others
                ]
                return "; ".join(moved)
            case _:
                return "done"


class AccessCommands(Commands):
    """The part of a `Story` with authentication on."""

    _now_ms = NOW_MS

    @property
    def _secured(self) -> SecuredWorld:
        assert isinstance(self.world, SecuredWorld), "begin the scenario with `secured`"
        return self.world

    def _do_policy(self, plain: list[str], options: dict[str, str]) -> None:
        """Change the policy: `policy CHANGE [+ CHANGE ...] [dry-run] [by=WHO]`, or `show` it."""
        if plain == ["show"]:
            self._show_policy()
            return
        is_trial = "dry-run" in plain
        text = " ".join(word for word in plain if word != "dry-run")
        changes = tuple(map(_policy_change, text.split(" + ")))
        self._ask(UpdatePolicy(1, changes, self._now_ms, is_trial, self._by(options, "admin")))

    def _show_policy(self) -> None:
        access = self._secured.state.access
        for name, members in sorted(access.groups.items()):
            self._out.append(f"group {name}: {' '.join(sorted(members)) or 'empty'}")
        for each in access.rules.values():
            actions = ",".join(action.value for action in each.actions)
            self._out.append(f"rule {each.name}: {each.subject} {actions} {each.object}")
        self._out += [f"key {key_id}: {note}" for key_id, note in access.revoked.items()]

    def _do_token(self, plain: list[str], options: dict[str, str]) -> None:
        name = plain[1] if len(plain) > 1 else ""
        kind = TokenKind.CLIENT if name else TokenKind.JOIN
        more: dict[str, object] = {}
        if "uses" in options:
            more["uses_left"] = int(options["uses"])
        if "expires_ms" in options:
            more["expires_ms"] = NOW_MS + int(options["expires_ms"])
        if "hash" in options:
            more["hash"] = options["hash"] * 64
        if "attributes" in options:
            more["attributes"] = tuple(options["attributes"].split(","))
        made = token(plain[0], name, kind, description=options.get("description", ""), **more)
        self._ask(CreateToken(1, made, self._now_ms, self._by(options, "admin")))

    def _do_later(self, plain: list[str], options: dict[str, str]) -> None:
        """Set the time of the next commands, in milliseconds after the beginning."""
        self._now_ms = NOW_MS + int(plain[0])

    def _do_tokens(self, plain: list[str], options: dict[str, str]) -> None:
        for each in self._secured.state.tokens:
            uses = "" if each.uses_left is None else f", {each.uses_left} uses left"
            for_what = f" with {' '.join(each.attributes)}" if each.attributes else ""
            whose = each.principal or "agents"
            self._out.append(f"{each.token_id} of {whose}{for_what} by {each.created_by}{uses}")
        self._out = self._out or ["no tokens"]

    def _do_changed(self, plain: list[str], options: dict[str, str]) -> None:
        """Print what the shell was told about changes of access."""
        self._out += [str(each) for each in self._secured.changed] or ["none"]

    def _do_revoke(self, plain: list[str], options: dict[str, str]) -> None:
        own = TokenId(options.get("with", ""))
        by = self._by(options, "admin")
        self._ask(RevokeToken(1, TokenId(plain[0]), self._now_ms, by, own))

    def _do_join(self, plain: list[str], options: dict[str, str]) -> None:
        """Join an agent: `join AGENT TOKEN OWN_TOKEN [attributes]`."""
        agent, join, own = plain[:3]
        attributes = parse_attributes(plain[3] if len(plain) > 3 else "")
        ids = (TokenId(join), AgentId(agent), TokenId(own))
        self._ask(JoinAgent(1, *ids, own * 8, attributes, self._now_ms))

    def _by(self, options: dict[str, str], name: str) -> Principal:
        return caller(options.get("by", name))

    def _ask(self, command: Command) -> None:
        self._out.append(self._answered(self._secured.ask(command)))


class OperatorCommands(Commands):
    """The part of a `Story` about commands of operators, and what the master recorded."""

    _words: list[str]

    def _do_operator(self, plain: list[str], options: dict[str, str]) -> None:
        """Execute a command of callers: `operator WHO,... kill|teardown|gone|... OBJECT`."""
        target = plain[2]
        known = self._ids.get(target, target)
        owner = FrameworkId(self._ids.get(options.get("of", ""), ""))
        is_trial = "dry-run" in plain
        for by in map(caller, plain[0].split(",")):
            weights = tuple(map(_weight, target.split(",")))
            commands: dict[str, Command] = {
                "kill": OperatorKill(1, TaskId(target), owner, None, by),
                "teardown": TeardownFramework(1, FrameworkId(known), caller=by),
                "gone": OperateAgent(1, known, MarkGone(), caller=by),
                "deactivate": OperateAgent(1, known, Deactivate(), caller=by),
                "weight": UpdateRoles(1, weights, is_trial, caller=by),
            }
            self._command(commands[plain[1]], f"{by.name or 'nobody'}: ")

    def _do_change(self, plain: list[str], options: dict[str, str]) -> None:
        """Change roles: `change ROLE PART=VALUE ... [+ ROLE ...] [dry-run] [force] [by=WHO]`."""
        changes = tuple(map(_role_change, " ".join(self._words[1:]).split(" + ")))
        by = caller(options.get("by", ""))
        named = "dry-run" in plain, "force" in plain, "somewhere"
        self._command(UpdateRoles(1, changes, *named, by), "")

    def _command(self, command: Command, before: str) -> None:
        """Execute a command, and print its answer."""
        (answer,) = (each for each in self.world.do(command) if isinstance(each, Answer))
        text = self._answered(answer.result)
        self._out.append(f"{before}{text}")

    def _do_roles(self, plain: list[str], options: dict[str, str]) -> None:
        """Print each role, what it holds, and its frameworks and tasks."""
        for role, status in role_statuses(self.world.state).items():
            held = f"{status.used or 'nothing'} used, {status.offered or 'nothing'} offered"
            numbers = f"{status.frameworks} frameworks, {status.tasks} tasks"
            numbers += f", {status.queued} queued" if status.queued else ""
            self._out.append(f"{role} ({status.settings}): {held}, share {status.share}, {numbers}")

    def _do_explain(self, plain: list[str], options: dict[str, str]) -> None:
        """Print the causes that `croupier why` prints, with the details of those named."""
        known = FrameworkId(self._ids[plain[0]])
        who = caller(options.get("by", "admin"))
        agent_id = AgentId(self._ids.get(options.get("agent", ""), ""))
        try:
            answer = explained(self.world.state, known, agent_id, self.world.now, who)
        except CroupierError as error:
            self._out.append(self._answered(error))
            return
        for each in answer.reasons:
            detail = self._with_names(each.detail)
            self._out.append(
                each.cause + (f": {detail}" if each.cause.replace(" ", "-") in plain else "")
            )

    def _do_list(self, plain: list[str], options: dict[str, str]) -> None:
        """Print what a caller lists: `list tasks|agents|frameworks|roles [FIELD:VALUE ...]`."""
        kind, state, by = plain[0], self.world.state, caller(options.get("by", "admin"))
        made = getattr(pb, f"List{kind.title()}Request")()
        request = text_format.Parse(" ".join(plain[1:]), made)
        listed: Listed[Any]
        try:
            match kind:
                case "tasks":
                    listed = lists.all_tasks(request, WallTime(self), by)
                case "agents":
                    listed = lists.all_agents(request, WallTime(self), by)
                case "frameworks":
                    listed = lists.all_frameworks(request, WallTime(self), by)
                case _:
                    listed = lists.all_roles(request, TaskCounts(), by)
        except CroupierError as error:
            self._out.append(f"{by.name}: {self._answered(error)}")
            return
        views = [listed.view(state, key) for key in listed.keys(state) if key]
        assert None not in views
        names = ", ".join(sorted(map(_listed, views)))
        self._out.append(f"{by.name or 'nobody'}: {names or 'none'}")

    def now(self) -> float:
        """See `Clock`."""
        return self.world.now

    def wall_ms(self) -> int:
        """See `Clock`."""
        return round(self.world.now * 1000) + 10_000_000

    def _do_cluster(self, plain: list[str], options: dict[str, str]) -> None:
        """Print whether callers see the totals of the cluster."""
        for by in map(caller, plain[0].split(",")):
            view = view_master(self.world.state, 0.0, by)
            self._out.append(f"{by.name}: {view.master_id}, totals: {view.HasField('total')}")

    def _do_facts(self, plain: list[str], options: dict[str, str]) -> None:
        """Print all facts of these kinds."""
        self._print(self.world.facts, plain)

    def _do_saved(self, plain: list[str], options: dict[str, str]) -> None:
        """Print all records of these kinds."""
        self._print(self.world.saved, plain)

    def _print(self, recorded: Sequence[object], kinds: list[str]) -> None:
        found = [each for each in recorded if type(each).__name__ in kinds]
        self._out += [self._with_names(_SET.sub(_in_order, str(each))) for each in found] or [
            "none"
        ]


_SET = re.compile(r"frozenset\(\{(.*?)\}\)")


def _in_order(found: re.Match[str]) -> str:
    """Return a set of names in their order."""
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


def _policy_change(text: str) -> PolicyChange:
    """Read `rule NAME SUBJECT ACTION,... OBJECT`, `unrule NAME`, and others."""
    kind, name, *rest = text.split()
    match kind:
        case "rule":
            return SetRule(rule(" ".join([name, *rest])))
        case "unrule":
            return RemoveRule(name)
        case "group":
            return SetGroup(name, frozenset(rest))
        case "ungroup":
            return RemoveGroup(name)
        case "member":
            return AddMember(name, rest[0])
        case "unmember":
            return RemoveMember(name, rest[0])
        case "key":
            return RevokeKey(KeyId(name), " ".join(rest))
        case _:
            return RestoreKey(KeyId(name))


def _listed(view: Any) -> str:
    """Return how an item of a list is named, and the roles of a framework."""
    match view:
        case pb.TaskView():
            return str(view.task.task_id)
        case pb.AgentView():
            return str(view.agent.hostname)
        case pb.FrameworkView():
            return f"{view.framework.name} in {' '.join(view.framework.roles)}"
        case _:
            return str(view.role)


def _weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (RolePart.WEIGHT,))


def _role_change(text: str) -> RoleChange:
    """Read `ROLE PART=VALUE ...`: without values, the role is to have its first settings again."""
    role, *words = text.split()
    given = dict(word.split("=", 1) for word in words if "=" in word)
    parts = tuple(RolePart[each.upper()] for each in given if each.upper() in RolePart.__members__)
    settings = RoleSettings(
        round(float(given.get("weight", 1)) * 1000),
        guarantee=parse_amounts(given.get("guarantee", "")),
        limit=parse_amounts(given.get("limit", "")),
    )
    return RoleChange(Role(role), settings if parts else None, parts)
