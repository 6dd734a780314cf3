"""A world with authentication on, whose callers have names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.master.core.effects import AccessChanged, Answer, Effect, SessionId
from croupier.master.core.events import Register, Subscribe
from croupier.master.core.policy_commands import PolicyChange, SetGroup, SetRule, UpdatePolicy
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.step import Command, Event
from croupier.master.core.tasks import Task
from croupier.master.core.token_commands import CreateToken
from croupier.model.access import AccessPolicy, Rule
from croupier.model.access_checks import parse_action
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, Role
from croupier.model.principal import ANONYMOUS, Principal, PrincipalName
from croupier.model.roles import RoleSettings
from tests.harness.world import CLUSTER, World

NOW_MS = 1_800_000_000_000


def caller(name: str, *groups: str) -> Principal:
    """Return the principal of that name; `client/` may be left out."""
    full = name if not name or "/" in name else f"client/{name}"
    return Principal(PrincipalName(full), frozenset(groups))


ADMIN = caller("admin")


def rule(text: str) -> Rule:
    """Read `NAME SUBJECT ACTION[,ACTION] OBJECT`."""
    name, subject, actions, target = text.split()
    return Rule(name, subject, tuple(map(parse_action, actions.split(","))), target)


def token(
    token_id: str, principal: str = "", kind: TokenKind = TokenKind.CLIENT, **more: object
) -> TokenRecord:
    """Return a token whose hash is made of its id."""
    name = PrincipalName(principal and caller(principal).name)
    made = TokenRecord(TokenId(token_id), kind, name, token_id * 8, 0)
    return replace(made, **more)  # type: ignore[arg-type]


class SecuredWorld(World):
    """A `World` with authentication on, in which `as_principal` names the next callers.

    Agents prove the id that they state, unless another caller is named.

    Attributes:
        changed: the effects that tell the shell of changes of access.
    """

    def __init__(
        self,
        *changes: PolicyChange | str,
        settings: Settings | None = None,
        is_on: bool = True,
        roles: Mapping[Role, RoleSettings] | None = None,
        state: State | None = None,
    ) -> None:
        """Begin with a policy; `client/admin` administers it. `state` replaces other options."""
        chosen = replace(settings or Settings(), auth=is_on)
        super().__init__(state=state or State(f"{CLUSTER}-1", chosen, Allocator(roles=roles)))
        self.principal = ANONYMOUS
        self.changed: list[AccessChanged] = []
        if changes:
            self.allow(*changes)

    def as_principal(self, name: str, *groups: str) -> SecuredWorld:
        """Name the caller of the next SUBSCRIBE and REGISTER events."""
        self.principal = caller(name, *groups)
        return self

    def do(self, event: Event, allocate: bool = True) -> list[Effect]:
        """See `World.do`."""
        if isinstance(event, Subscribe | Register) and event.principal.is_anonymous:
            event = replace(event, principal=self._caller(event))
        effects = super().do(event, allocate)
        self.changed += [each for each in effects if isinstance(each, AccessChanged)]
        return effects

    def _caller(self, event: Subscribe | Register) -> Principal:
        if isinstance(event, Register) and event.agent_id and self.principal.is_anonymous:
            return caller(f"agent/{event.agent_id}")
        return self.principal

    def ask(self, command: Command) -> object:
        """Return the answer to a command; it may be an error."""
        (answer,) = [each for each in self.do(command) if isinstance(each, Answer)]
        return answer.result

    def refused(self, command: Command) -> CroupierError:
        """Return the error with which a command is refused; nothing is saved."""
        before = len(self.saved)
        error = self.ask(command)
        assert isinstance(error, CroupierError)
        assert len(self.saved) == before
        return error

    def allow(self, *changes: PolicyChange | str) -> AccessPolicy:
        """Change the policy as an administrator; text is a rule."""
        made = tuple(SetRule(rule(each)) if isinstance(each, str) else each for each in changes)
        answer = self.ask(UpdatePolicy(1, made, NOW_MS, caller=ADMIN))
        assert isinstance(answer, AccessPolicy), answer
        return answer

    def add_token(self, made: TokenRecord) -> TokenRecord:
        """Store a token as an administrator."""
        answer = self.ask(CreateToken(1, made, NOW_MS, ADMIN))
        assert isinstance(answer, TokenRecord), answer
        return answer

    def member(self, group: str, *members: str) -> None:
        """Replace the members of a group."""
        self.allow(SetGroup(group, frozenset(caller(each).name for each in members)))

    def secured_agent(self, agent_id: str, resources: str = "cpus:4;mem:4GB") -> SessionId:
        """Register an agent that has proven its id."""
        before, self.principal = self.principal, ANONYMOUS
        session = self.agent(resources, f"host-{agent_id}", agent_id=AgentId(agent_id))
        self.principal = before
        return session

    def owned(self, owner: str, role: str = "*", **more: object) -> SessionId:
        """Subscribe a framework of `owner`."""
        before, self.principal = self.principal, caller(owner)
        session = self.framework(role, **more)  # type: ignore[arg-type]
        self.principal = before
        return session

    def acknowledge(self, session: SessionId, task: Task) -> None:
        """Acknowledge all updates of a task."""
        update = (task.agent_id, task.task_id, task.sequence)
        self.call(session, calls.Acknowledge((update,)))

    def error_of(self, session: SessionId) -> CroupierError | None:
        """Return the error with which a session was closed; None if it is open."""
        return self.closed.get(session)
