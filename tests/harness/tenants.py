"""A world with authentication, and rules for tenants, watchers and operators."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core.effects import SessionId
from croupier.master.core.events import Claim, Register
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.settings import Settings
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Command, TaskInfo
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.world import make_task

TENANTS = (
    "anna client/anna register role:ads",
    "bob client/bob register role:web",
    "users client/anna run-as user:nobody",
    "agents client/anna run-as user:(agent)",
    "watch client/vera view *",
    "killer client/karl kill,teardown role:ads",
    "ops client/olga operate-agents,view agent:a1",
    "web client/wim change-roles,view role:web",
)


class Scene(SecuredWorld):
    """An agent `a1`, on which a framework of Anna runs `t1` in role `ads/prod`."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings=settings)
        self.allow(*TENANTS)
        self.host = self.secured_agent("a1")
        self.session = self.owned("anna", "ads/prod")
        self.annas = self.framework_id(self.session)
        assert self.accept(self.session, make_task("t1")).error is None
        # The filter of the remainder ends.
        self.pass_time(6.0)

    def kill(self, by: str, framework_id: str = "") -> object:
        """Return the answer to a kill of `t1`."""
        named = FrameworkId(framework_id)
        return self.ask(OperatorKill(1, TaskId("t1"), named, None, caller(by)))

    def register(self, by: str, agent_id: str = "a1", claim: Claim = Claim.KNOWN) -> SessionId:
        """Register an agent by a principal, and return its session."""
        session, total = SessionId(900), Resources.parse("cpus:9")
        event = Register(session, AgentId(agent_id), "evil", total, {}, claim=claim)
        self.as_principal(by).do(replace(event, master_epoch=2**64 - 1, objection="later"))
        return session


def as_user(task_id: str, user: str) -> TaskInfo:
    """Return a task that runs as that Unix user."""
    return replace(make_task(task_id), command=Command(("true",), user=user))
