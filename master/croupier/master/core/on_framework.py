"""Frameworks come and go."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core.deadlines import FailoverTimeout, ResendTerminalUpdates, SessionSilence
from croupier.master.core.effects import Close, Effect, Happened, Save, Send
from croupier.master.core.events import Subscribe
from croupier.master.core.facts import FrameworkJoined, FrameworkLeft
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.messages import Subscribed
from croupier.master.core.on_allocation import return_offer
from croupier.master.core.on_task import (
    acknowledge,
    drop,
    forget_all,
    forget_removed,
    kill,
    send_updates,
    tell_orphans,
)
from croupier.master.core.records import ForgetFramework, FrameworkRecord
from croupier.master.core.state import State
from croupier.model.agent_orders import ResendUpdates
from croupier.model.demand import check_demands
from croupier.model.errors import (
    Conflict,
    CroupierError,
    FailedOver,
    InvalidRequest,
    ProtocolViolation,
    Removed,
    Unavailable,
)
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, Role, check_id, check_roles
from croupier.model.limits import MAX_WAIT_S
from croupier.model.roles import ancestors
from croupier.model.task import Reason, TaskState, TaskStatus

MAX_NAME = 1024


def on_subscribe(state: State, event: Subscribe, now: float) -> Iterator[Effect]:
    """Take in a framework: new, back again, or taking over from an older session."""
    peer = state.peers.get(event.session)
    if peer is not None:
        error: CroupierError = ProtocolViolation(
            "SUBSCRIBE must be the first call, and the only one"
        )
        yield Close(event.session, error)
        if isinstance(peer, Framework):
            yield from disconnect(state, peer, str(error), now)
        return
    try:
        _check(state, event)
    except CroupierError as refusal:
        yield Close(event.session, refusal)
        return
    framework = state.frameworks.get(event.framework_id)
    kind = "new" if not event.framework_id else "again" if framework else "returned"
    if framework is not None and framework.session is not None:
        message = "a newer session of this framework has taken over"
        yield Close(framework.session, FailedOver(message))
        yield from disconnect(state, framework, message, now)
    if framework is None:
        framework_id = event.framework_id or FrameworkId(state.next_id("F"))
        framework = state.add_framework(
            framework_id, event.name, event.roles, event.failover_timeout_s
        )
        framework.is_unrecorded = bool(event.framework_id)
    yield from _connect(state, framework, event, now)
    yield Happened(
        FrameworkJoined(
            framework.framework_id,
            framework.name,
            framework.roles,
            "new" if kind == "new" else "again" if kind == "again" else "returned",
        )
    )


def disconnect(state: State, framework: Framework, message: str, now: float) -> Iterator[Effect]:
    """A framework's session is over: its offers go back, its tasks run on for a time."""
    assert framework.session is not None
    del state.peers[framework.session]
    state.deadlines.cancel(SessionSilence(framework.session))
    state.deadlines.cancel(ResendTerminalUpdates(framework.framework_id))
    framework.session = None
    framework.move(FrameworkState.DISCONNECTED)
    state.allocator.connect(framework.framework_id, False)
    for offer in list(framework.offers.values()):
        yield from return_offer(state, offer, "rescinded", message, now)
    until = now + framework.failover_timeout_s
    state.deadlines.set(FailoverTimeout(framework.framework_id), until)
    yield Happened(FrameworkLeft(framework.framework_id, "disconnected", message))


def remove(state: State, framework: Framework, message: str, now: float) -> Iterator[Effect]:
    """End a framework for good: its tasks are killed, its id is spent.

    It stays in the books until the last of its tasks is known to have ended.
    """
    if framework.session is not None:
        yield from disconnect(state, framework, message, now)
    state.deadlines.cancel(FailoverTimeout(framework.framework_id))
    framework.move(FrameworkState.REMOVED)
    yield Save(record_of(framework))
    yield from forget_all(framework, state.begin_run(framework, ""))
    forgotten = state.removed.add(framework.framework_id, framework.is_unrecorded)
    if forgotten is not None:
        yield Save(ForgetFramework(forgotten))
    for task in list(framework.tasks.values()):
        is_given_up = task.state is TaskState.UNREACHABLE and not task.is_absent
        if task.state.is_terminal or is_given_up:
            yield from acknowledge(state, task.status)
            yield from drop(state, task)
        else:
            yield from kill(state, task, None, Reason.FRAMEWORK_REMOVED, now)
    yield Happened(FrameworkLeft(framework.framework_id, "removed", message))
    forget_removed(state, framework.framework_id)


def adopt(state: State, framework_id: FrameworkId, role: Role | None, now: float) -> Framework:
    """Take in a framework that is known only by the tasks which an agent runs for it.

    `role` is that of the first of them, if the agent knows it. To save it is for the caller.
    """
    framework = state.add_framework(
        framework_id, "", (role or DEFAULT_ROLE,), state.settings.return_timeout_s
    )
    framework.is_unrecorded = True
    if state.removed.refuses(framework_id):
        framework.move(FrameworkState.REMOVED)
        return framework
    until = now + framework.failover_timeout_s
    state.deadlines.set(FailoverTimeout(framework_id), until)
    return framework


def own_roles(named: tuple[Role, ...], roles: tuple[Role, ...]) -> tuple[Role, ...]:
    """Return `named` if they are all among `roles`, which are the framework's.

    Raises:
        InvalidRequest: if one is not.
    """
    for role in named:
        if role not in roles:
            raise InvalidRequest(f"role {role[:80]!r} is not one of the framework's")
    return named


def _check(state: State, event: Subscribe) -> None:
    if event.framework_id:
        check_id("framework", event.framework_id)
        known = state.frameworks.get(event.framework_id)
        spent = known is None and state.removed.refuses(event.framework_id)
        if spent or (known is not None and known.state is FrameworkState.REMOVED):
            raise Removed(f"framework {event.framework_id} was removed; subscribe without an id")
        if known is not None and event.client_id in known.earlier_clients:
            # It lost its stream before it could be told so.
            raise FailedOver("a newer run of this framework's program has taken over")
    if not event.name or len(event.name) > MAX_NAME:
        raise InvalidRequest(f"a framework's name has 1 to {MAX_NAME} characters")
    check_roles(event.roles)
    _check_levels(state, event)
    if not event.framework_id and len(state.frameworks) >= state.settings.frameworks:
        raise Unavailable(f"{len(state.frameworks)} frameworks are known; no more are taken in")
    check_demands(event.demands, event.roles)
    own_roles(event.suppressed_roles, event.roles)
    if not 0 <= event.failover_timeout_s <= MAX_WAIT_S:
        raise InvalidRequest("the failover timeout must be between 0 and 365 days")
    if event.offer_lease_s < 0:
        raise InvalidRequest("an offer's lease must not be negative")


def _check_levels(state: State, event: Subscribe) -> None:
    """Bound the tree of roles: each level of a path that no other role has takes memory.

    Raises:
        Conflict: if there would be too many.
    """
    new = {path for role in event.roles for path in (*ancestors(role), role)}
    known = state.allocator.queries.roles_in_use()
    added = sum(path not in known for path in new)
    # A framework that returns with the roles that it has had adds none.
    if added and len(known) + added > state.settings.role_levels:
        most = state.settings.role_levels
        raise Conflict(f"the cluster's roles would have more than {most} levels together")


def _connect(state: State, framework: Framework, event: Subscribe, now: float) -> Iterator[Effect]:
    before = record_of(framework)
    if framework.roles != event.roles:
        # Tasks stay in the roles that they were launched in; the demand is told anew.
        framework.roles = event.roles
        state.allocator.set_demand(framework.framework_id, ())
        state.allocator.set_roles(framework.framework_id, event.roles)
    framework.name, framework.failover_timeout_s = event.name, event.failover_timeout_s
    framework.hostname, framework.webui_url = event.hostname, event.webui_url
    framework.takes_reconciled = event.takes_reconciled
    lease_s = event.offer_lease_s or state.settings.offer_lease_s
    framework.offer_lease_s = min(lease_s, state.settings.max_offer_lease_s)
    if event.client_id != framework.client_id:
        framework.epoch += bool(framework.client_id)
        yield from forget_all(framework, state.begin_run(framework, event.client_id))
    framework.session, framework.last_heard = event.session, now
    framework.move(FrameworkState.CONNECTED)
    state.peers[event.session] = framework
    state.deadlines.cancel(FailoverTimeout(framework.framework_id))
    until = now + state.settings.agent_timeout_s
    state.deadlines.set(SessionSilence(event.session), until)
    if record_of(framework) != before or not event.framework_id:
        yield Save(record_of(framework))
    yield Send(
        event.session,
        Subscribed(framework.framework_id, state.settings.heartbeat_s, state.master_id),
    )
    yield from _catch_up(state, framework, now)
    state.allocator.set_demand(framework.framework_id, event.demands)
    state.allocator.revive(framework.framework_id)
    if event.suppressed or event.suppressed_roles:
        silent = () if event.suppressed else event.suppressed_roles
        state.allocator.suppress(framework.framework_id, silent)
    state.allocator.connect(framework.framework_id, True)


def _catch_up(state: State, framework: Framework, now: float) -> Iterator[Effect]:
    """Have the framework told what it missed: by its agents, or by us where they are gone."""
    assert framework.session is not None
    agents = {task.agent_id: None for task in framework.tasks.values()}
    for agent_id in agents:
        agent = state.agents.get(agent_id)
        if agent is not None and agent.session is not None:
            yield Send(agent.session, ResendUpdates(framework.framework_id))
    untold: list[TaskStatus] = []
    for task in framework.tasks.values():
        # What its agent has said since comes from there, in order with all before it.
        if task.is_unsent and not task.status.needs_acknowledgement:
            untold.append(task.status)
        task.is_unsent = False
    yield from send_updates(framework.session, untold)
    yield from tell_orphans(state, framework, now)


def record_of(framework: Framework) -> FrameworkRecord:
    """What must outlive the master."""
    return FrameworkRecord(
        framework.framework_id,
        framework.name,
        framework.roles,
        framework.failover_timeout_s,
        framework.state is FrameworkState.REMOVED,
        framework.client_id,
        framework.epoch,
        framework.is_unrecorded,
        framework.earlier_clients,
    )
