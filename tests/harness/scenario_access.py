"""Commands of scenarios for callers, rules and tokens; `secured` begins such a scenario."""

from __future__ import annotations

from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.effects import SessionId
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
from croupier.model.attributes import parse_attributes
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import Principal
from croupier.model.roles import RoleSettings
from tests.harness.secured_world import NOW_MS, SecuredWorld, caller, rule, token
from tests.harness.world import World


class AccessCommands:
    """The part of a `Story` with authentication on."""

    world: World
    _out: list[str]
    _sessions: dict[str, SessionId]
    _names: dict[str, str]
    _ids: dict[str, str]

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
        text = str(answer) if isinstance(answer, CroupierError) else ""
        for known, name in self._names.items():
            text = text.replace(known, name)
        self._out.append(f"{type(answer).__name__}: {text}" if text else "done")


def _weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (RolePart.WEIGHT,))
