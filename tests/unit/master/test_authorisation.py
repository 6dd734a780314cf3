"""Callers do what rules allow, and see nothing of what they may not view."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core.agent_commands import Deactivate, MarkGone, OperateAgent
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.effects import Close, Deposed, SessionId
from croupier.master.core.events import (
    AgentHealth,
    AgentTask,
    Claim,
    RefusedLaunch,
    Register,
    Subscribe,
)
from croupier.master.core.facts import AgentRefused, UpdateHandled
from croupier.master.core.framework_commands import TeardownFramework, TornDown
from croupier.master.core.messages import AgentFailed
from croupier.master.core.records import FrameworkRecord
from croupier.master.core.role_commands import RolesMoved, UpdateRoles
from croupier.master.core.roles import Part, RoleChange
from croupier.master.core.settings import Settings
from croupier.master.core.step import step
from croupier.master.core.task_commands import OperatorKill
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.errors import (
    Conflict,
    CroupierError,
    FailedOver,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import ANONYMOUS
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from tests.harness.secured_world import ADMIN, SecuredWorld, caller
from tests.harness.world import CLUSTER, make_task

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


# What any peer on the loopback could do before.


@pytest.mark.parametrize("by", ["agent/a2", "client/a1", "client/admin", "master/m1"])
@pytest.mark.parametrize("claim", [Claim.KNOWN, Claim.NEWER, Claim.UNPROVEN])
def test_no_other_registers_under_the_id_of_an_agent(by: str, claim: Claim) -> None:
    scene = Scene()
    before = len(scene.sent[scene.host])
    session = scene.register(by, claim=claim)
    assert isinstance(scene.error_of(session), PermissionDenied)
    assert any(isinstance(fact, AgentRefused) for fact in scene.facts)
    assert scene.error_of(scene.host) is None, "the living agent stays"
    assert scene.state.agents[AgentId("a1")].hostname == "host-a1"
    assert len(scene.sent[scene.host]) == before


def test_no_anonymous_agent_registers_or_deposes_the_master() -> None:
    scene = Scene()
    total = Resources.parse("cpus:9")
    later = Register(SessionId(900), AgentId("a9"), "h", total, {}, claim=Claim.NEWER)
    effects = step(scene.state, later, scene.now)
    assert not any(isinstance(effect, Deposed) for effect in effects)
    (close,) = [effect for effect in effects if isinstance(effect, Close)]
    assert isinstance(close.error, Unauthenticated)


@pytest.mark.parametrize("by", ["bob", "admin", "oidc/anna", "agent/a1"])
def test_no_other_takes_over_a_framework(by: str) -> None:
    scene = Scene()
    for client_id in ("c1", "c2"):
        taken = scene.owned(by, "ads", framework_id=scene.annas, client_id=client_id)
        error = scene.error_of(taken)
        assert isinstance(error, NotFound)
        assert str(error) == f"no framework {scene.annas}"
    assert scene.error_of(scene.session) is None


def test_an_impostor_with_an_old_client_id_learns_nothing() -> None:
    scene = Scene()
    scene.owned("anna", "ads", framework_id=scene.annas, client_id="c2")
    again = scene.owned("anna", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), FailedOver)
    again = scene.owned("bob", "ads", framework_id=scene.annas, client_id="c1")
    assert isinstance(scene.error_of(again), NotFound)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("bob", NotFound),
        ("agent/a1", NotFound),
        ("vera", PermissionDenied),
        ("karl", TaskSnapshot),
        ("anna", TaskSnapshot),
        ("admin", TaskSnapshot),
    ],
)
def test_who_kills_a_task(by: str, expected: type) -> None:
    scene = Scene()
    for framework_id in ("", scene.annas):
        answer = scene.kill(by, framework_id)
        assert isinstance(answer, expected)
        if expected is NotFound:
            assert str(answer) == "no task 't1'"
    is_killed = scene.state.frameworks[scene.annas].tasks[TaskId("t1")].kill is not None
    assert is_killed == (expected is TaskSnapshot)


@pytest.mark.parametrize(
    ("by", "expected"),
    [("", NotFound), ("bob", NotFound), ("vera", Conflict), ("anna", Conflict), ("karl", Conflict)],
)
def test_who_learns_how_a_task_ended(by: str, expected: type[CroupierError]) -> None:
    scene = Scene()
    scene.finish(scene.host, scene.annas, "t1")
    assert isinstance(scene.kill(by), expected)
    (task,) = scene.state.frameworks[scene.annas].tasks.values()
    scene.acknowledge(scene.session, task)
    assert not scene.state.frameworks[scene.annas].tasks
    assert isinstance(scene.kill(by), expected)


def test_a_task_of_another_with_the_same_id_is_not_ambiguous() -> None:
    scene = Scene()
    scene.allow("agents2 client/bob run-as user:(agent)")
    scene.decline(scene.session, 1000.0)
    other = scene.owned("bob", "web")
    assert scene.accept(other, make_task("t1")).error is None
    answer = scene.kill("anna")
    assert isinstance(answer, TaskSnapshot)
    assert answer.framework_id == scene.annas


@pytest.mark.parametrize("action", [MarkGone(), Deactivate()])
@pytest.mark.parametrize("agent", ["a1", "host-a1"])
@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("anna", NotFound),
        ("agent/a1", NotFound),
        ("vera", PermissionDenied),
        ("olga", AgentStatus),
        ("admin", AgentStatus),
    ],
)
def test_who_operates_an_agent(
    by: str, agent: str, action: MarkGone | Deactivate, expected: type
) -> None:
    scene = Scene()
    answer = scene.ask(OperateAgent(1, agent, action, caller=caller(by)))
    assert isinstance(answer, expected)
    known = scene.state.agents.get(AgentId("a1"))
    assert (known is None or known.deactivated) == (expected is AgentStatus)


def test_hostnames_of_agents_that_the_caller_may_not_view_are_not_named() -> None:
    scene = Scene()
    scene.secured_agent("a2")
    for agent in ("a2", "host-a2"):
        answer = scene.ask(OperateAgent(1, agent, Deactivate(), caller=caller("olga")))
        assert isinstance(answer, NotFound)
    scene.ask(OperateAgent(1, "a2", MarkGone(), caller=ADMIN))
    answer = scene.ask(OperateAgent(1, "a2", Deactivate(), caller=caller("olga")))
    assert isinstance(answer, NotFound), "not that it is gone"


def weight(role: str) -> RoleChange:
    return RoleChange(Role(role), RoleSettings(5000), (Part.WEIGHT,))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("anna", NotFound),
        ("wim", NotFound),
        ("vera", PermissionDenied),
        ("admin", RolesMoved),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_who_changes_a_role(by: str, expected: type, dry_run: bool) -> None:
    scene = Scene()
    changes = (weight("web"), weight("ads"))
    answer = scene.ask(UpdateRoles(1, changes, dry_run, caller=caller(by)))
    assert isinstance(answer, expected)
    is_set = Role("ads") in scene.state.allocator.queries.roles()
    assert is_set == (expected is RolesMoved and not dry_run)


def test_a_change_shows_only_roles_that_the_caller_may_view() -> None:
    scene = Scene()
    scene.owned("bob", "web")
    moved = [
        [after.role for _, after in answer.others]
        for by in ("wim", "admin")
        if isinstance(
            answer := scene.ask(UpdateRoles(1, (weight("web"),), True, caller=caller(by))),
            RolesMoved,
        )
    ]
    assert moved[0] == []
    assert "ads" in moved[1]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("", NotFound),
        ("bob", NotFound),
        ("vera", PermissionDenied),
        ("karl", TornDown),
        ("anna", TornDown),
        ("admin", TornDown),
    ],
)
def test_who_tears_down_a_framework(by: str, expected: type) -> None:
    scene = Scene()
    answer = scene.ask(TeardownFramework(1, scene.annas, caller=caller(by)))
    assert isinstance(answer, expected)
    assert scene.state.frameworks[scene.annas].is_removed == (expected is TornDown)


def test_permission_is_needed_in_all_roles_of_a_framework() -> None:
    scene = Scene()
    scene.allow("more client/anna register role:web")
    session = scene.owned("anna", roles=("ads", "web"))
    command = TeardownFramework(1, scene.framework_id(session), caller=caller("karl"))
    assert isinstance(scene.ask(command), PermissionDenied)


def test_who_learns_that_a_framework_was_removed() -> None:
    scene = Scene()
    scene.finish(scene.host, scene.annas, "t1")
    command = TeardownFramework(1, scene.annas, caller=ADMIN)
    scene.ask(command)
    assert scene.annas not in scene.state.frameworks
    for by, expected in (("anna", TornDown), ("karl", TornDown), ("vera", NotFound)):
        assert isinstance(scene.ask(replace(command, caller=caller(by))), expected)


# Frameworks.


@pytest.mark.parametrize(
    ("by", "role", "error"),
    [
        ("anna", "ads", None),
        ("anna", "ads/x/y", None),
        ("anna", "*", PermissionDenied),
        ("anna", "web", PermissionDenied),
        ("vera", "ads", PermissionDenied),
        ("agent/a1", "ads", PermissionDenied),
    ],
)
def test_who_subscribes_in_a_role(by: str, role: str, error: type | None) -> None:
    scene = Scene()
    found = scene.error_of(scene.owned(by, role))
    assert found is None if error is None else isinstance(found, error)
    assert len(scene.state.frameworks) == (2 if error is None else 1)


def test_all_roles_of_a_framework_need_permission() -> None:
    scene = Scene()
    assert isinstance(scene.error_of(scene.owned("anna", roles=("ads", "web"))), PermissionDenied)


def test_no_anonymous_framework_subscribes() -> None:
    scene = Scene()
    event = Subscribe(SessionId(900), FrameworkId(""), "f", (Role("ads"),), "c")
    scene.as_principal("").do(event)
    assert isinstance(scene.error_of(SessionId(900)), Unauthenticated)


def test_the_owner_is_recorded_and_survives_a_failover() -> None:
    scene = Scene()
    (record,) = [each for each in scene.saved if isinstance(each, FrameworkRecord)]
    assert record.owner == "client/anna"
    scene.restart()
    taken = scene.owned("bob", "web", framework_id=scene.annas)
    assert isinstance(scene.error_of(taken), NotFound)
    assert scene.error_of(scene.owned("anna", "ads", framework_id=scene.annas)) is None


def test_a_removed_framework_keeps_its_owner_while_its_tasks_end() -> None:
    scene = Scene()
    scene.ask(TeardownFramework(1, scene.annas, caller=ADMIN))
    scene.restart()
    assert scene.state.frameworks[scene.annas].owner == "client/anna"
    assert isinstance(scene.kill("bob"), NotFound)
    assert isinstance(scene.kill("anna"), TaskSnapshot)


def unowned(role: str = "ads") -> tuple[SecuredWorld, FrameworkId]:
    """Return a world with a framework of before authentication."""
    world = SecuredWorld(is_on=False)
    framework_id = world.framework_id(world.framework(role))
    world.allow(*TENANTS)
    world.state.settings = replace(world.state.settings, auth=True)
    world.restart()
    return world, framework_id


def test_a_framework_without_owner_is_claimed_once() -> None:
    world, framework_id = unowned()
    assert isinstance(
        world.error_of(world.owned("bob", "web", framework_id=framework_id)), NotFound
    )
    claimed = world.owned("anna", "ads", framework_id=framework_id)
    assert world.error_of(claimed) is None
    saved = [each for each in world.saved if isinstance(each, FrameworkRecord)]
    assert saved[-1].owner == "client/anna"
    world.restart()
    world.allow("more client/bob register role:ads")
    taken = world.owned("bob", "ads", framework_id=framework_id)
    assert isinstance(world.error_of(taken), NotFound)


def test_a_claim_needs_permission_in_the_roles_of_all_tasks() -> None:
    world = SecuredWorld(*TENANTS, "both client/carl register role:**")
    listed = []
    for task_id, role in (("t1", "ads"), ("t2", "web")):
        place = (FrameworkId("F9"), TaskId(task_id), AgentId("a1"))
        status = TaskStatus(*place, TaskState.RUNNING, sequence=1)
        listed.append(
            AgentTask(FrameworkId("F9"), make_task(task_id), status, (status,), Role(role))
        )
    world.as_principal("agent/a1").agent("cpus:4;mem:4GB", agent_id="a1", tasks=tuple(listed))
    taken = world.owned("anna", "ads", framework_id="F9")
    assert isinstance(world.error_of(taken), NotFound)
    assert world.error_of(world.owned("carl", "ads", framework_id="F9")) is None


@pytest.mark.parametrize("framework_id", ["F9", f"{CLUSTER}-1-F77", f"{CLUSTER}-2-F1"])
def test_nobody_owns_an_id_before_it_is_assigned(framework_id: str) -> None:
    """Else agents that return after a loss of records would give it the tasks of another."""
    scene = Scene()
    taken, others = (
        scene.owned("bob", "web", framework_id=each) for each in (framework_id, scene.annas)
    )
    assert str(scene.error_of(taken)) == f"no framework {framework_id}"
    assert isinstance(scene.error_of(taken), type(scene.error_of(others)))
    assert FrameworkId(framework_id) not in scene.state.frameworks


def test_without_authentication_an_owner_is_ignored_and_kept() -> None:
    scene = Scene()
    scene.state.settings = replace(scene.state.settings, auth=False)
    scene.restart()
    session = scene.owned("", "ads", framework_id=scene.annas)
    assert scene.error_of(session) is None
    assert scene.state.frameworks[scene.annas].owner == "client/anna"


def test_frameworks_of_one_owner_are_bounded() -> None:
    scene = Scene(Settings(owner_frameworks=2))
    assert scene.error_of(scene.owned("anna", "ads")) is None
    assert isinstance(scene.error_of(scene.owned("anna", "ads")), Unavailable)
    assert scene.error_of(scene.owned("bob", "web")) is None
    # A known one may always return.
    again = scene.owned("anna", "ads", framework_id=scene.annas)
    assert scene.error_of(again) is None


# Tasks.


def as_user(task_id: str, user: str) -> TaskInfo:
    return replace(make_task(task_id), command=Command(("true",), user=user))


def test_a_task_runs_as_a_permitted_user_only() -> None:
    scene = Scene()
    tasks = (as_user("t2", "nobody"), as_user("t3", "root"), as_user("t4", "nobody"))
    verdict = scene.accept(scene.session, *tasks)
    assert verdict.error is None
    errors = [each.error for each in verdict.tasks]
    assert [type(each) for each in errors] == [type(None), PermissionDenied, type(None)]
    assert str(errors[1]) == "client/anna may not run-as user:root"


def test_the_agents_own_account_needs_permission() -> None:
    scene = Scene()
    scene.decline(scene.session, 1000.0)
    session = scene.owned("bob", "web")
    verdict = scene.accept(session, make_task("t2"))
    assert isinstance(verdict.tasks[0].error, PermissionDenied)


def test_a_withdrawn_permission_ends_no_framework_but_its_launches() -> None:
    scene = Scene()
    scene.allow("anna client/anna view role:ads")
    assert scene.error_of(scene.session) is None
    verdict = scene.accept(scene.session, make_task("t2"))
    assert isinstance(verdict.error, PermissionDenied)
    assert TaskId("t1") in scene.state.frameworks[scene.annas].tasks
    again = scene.owned("anna", "ads", framework_id=scene.annas)
    assert isinstance(scene.error_of(again), PermissionDenied)


def test_tasks_of_one_owner_are_bounded() -> None:
    scene = Scene(Settings(owner_tasks=2))
    verdict = scene.accept(scene.session, make_task("t2"), make_task("t3"))
    assert [type(each.error) for each in verdict.tasks] == [type(None), Conflict]
    scene.finish(scene.host, scene.annas, "t2")
    scene.acknowledge(scene.session, scene.state.frameworks[scene.annas].tasks[TaskId("t2")])
    assert scene.accept(scene.session, make_task("t4")).tasks[0].error is None


# Agents.


def test_an_agent_without_an_id_gets_the_one_that_it_has_proven() -> None:
    world = SecuredWorld()
    session = world.as_principal("agent/a7").agent("cpus:1")
    assert world.agent_id(session) == "a7"


def test_no_agent_reports_for_the_tasks_of_another() -> None:
    scene = Scene()
    other = scene.secured_agent("a2")
    framework_id, task_id = scene.annas, TaskId("t1")
    task = scene.state.frameworks[framework_id].tasks[task_id]
    scene.report(other, framework_id, task_id, TaskState.FINISHED, 1)
    assert task.state is TaskState.STAGING
    assert UpdateHandled("unknown") in scene.facts
    refusal = RefusedLaunch(framework_id, task_id, "no")
    scene.do(AgentHealth(other, (), (refusal,)))
    assert task.state is TaskState.STAGING
    scene.end_session(other)
    status = TaskStatus(framework_id, task_id, AgentId("a2"), TaskState.FINISHED, sequence=1)
    listed = AgentTask(framework_id, make_task("t1"), status, (status,), Role("ads"))
    scene.as_principal("agent/a2").agent("cpus:4", agent_id="a2", tasks=(listed,))
    assert task.state is TaskState.STAGING
    assert task.agent_id == "a1"


def test_an_agent_that_speaks_for_another_is_disconnected() -> None:
    scene = Scene()
    other = scene.secured_agent("a2")
    scene.report(other, scene.annas, "t1", TaskState.FINISHED, 1, agent_id="a1")
    assert scene.error_of(other) is not None
    assert scene.state.frameworks[scene.annas].tasks[TaskId("t1")].state is TaskState.STAGING


def test_who_learns_of_the_loss_of_an_agent() -> None:
    scene = Scene()
    scene.secured_agent("a2")
    bob = scene.owned("bob", "web")
    for agent_id in ("a1", "a2"):
        scene.ask(OperateAgent(1, agent_id, MarkGone(), caller=ADMIN))
    scene.allow("agents client/bob view agent:*")
    scene.secured_agent("a3")
    scene.ask(OperateAgent(1, "a3", MarkGone(), caller=ADMIN))
    lost = [
        [message.agent_id for message in scene.sent[each] if isinstance(message, AgentFailed)]
        for each in (scene.session, bob)
    ]
    assert lost == [["a1"], ["a3"]], "its tasks were there; it may view it"


def test_with_authentication_off_nothing_of_it_is_recorded() -> None:
    world = SecuredWorld(is_on=False)
    world.principal = ANONYMOUS
    world.agent("cpus:4;mem:4GB", agent_id="a1")
    session = world.framework("ads")
    world.accept(session, as_user("t1", "root"))
    assert not any(getattr(each, "owner", "") for each in world.saved)
    assert not any(getattr(each, "is_authenticated", False) for each in world.saved)
