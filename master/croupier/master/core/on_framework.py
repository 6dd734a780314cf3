"""Frameworks subscribe, disconnect and are removed."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.master.core import on_task, verdicts
from croupier.master.core.authorisation import require_registered
from croupier.master.core.deadlines import FailoverTimeout, ResendTerminalUpdates, SessionSilence
from croupier.master.core.effects import Close, Effect, Happened, Save, Send
from croupier.master.core.events import Subscribe
from croupier.master.core.facts import FrameworkJoined, FrameworkLeft, Joined
from croupier.master.core.frameworks import Framework, FrameworkState
from croupier.master.core.messages import Subscribed
from croupier.master.core.on_allocation import return_offer
from croupier.master.core.on_hold import end_hold
from croupier.master.core.on_line import recall_of
from croupier.master.core.records import ForgetFramework
from croupier.master.core.state import State
from croupier.model import errors
from croupier.model.access import Action, role_object
from croupier.model.agent_orders import ResendUpdates
from croupier.model.demand import check_demands
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, Role, check_id, check_roles
from croupier.model.limits import MAX_WAIT_S
from croupier.model.roles import ancestors
from croupier.model.task import Reason, TaskState, TaskStatus

MAX_NAME = 1024


def on_subscribe(state: State, event: Subscribe, now: float) -> Iterator[Effect]:
    """Connect a framework: new, reconnected, or replacing an older session."""
    peer = state.peers.get(event.session)
    if peer is not None:
        error = errors.ProtocolViolation("SUBSCRIBE must be the first call, and the only one")
        yield Close(event.session, error)
        if isinstance(peer, Framework):
            yield from disconnect(state, peer, str(error), now)
        return
    try:
        _check(state, event, now)
    except errors.CroupierError as refusal:
        yield Close(event.session, refusal)
        return
    framework = state.frameworks.get(event.framework_id)
    kind: Joined = "new" if not event.framework_id else "again" if framework else "returned"
    if framework is not None and framework.session is not None:
        message = "a newer session of this framework has taken over"
        yield Close(framework.session, errors.FailedOver(message))
        yield from disconnect(state, framework, message, now)
    if framework is None:
        framework_id = event.framework_id or FrameworkId(state.next_id("F"))
        framework = state.add_framework(
            framework_id, event.name, event.roles, event.failover_timeout_s
        )
        framework.is_unrecorded = bool(event.framework_id)
    yield from _connect(state, framework, event, now)
    yield Happened(FrameworkJoined(framework.framework_id, framework.name, framework.roles, kind))


def disconnect(state: State, framework: Framework, message: str, now: float) -> Iterator[Effect]:
    """End a framework's session and its offers; its tasks run until the failover timeout."""
    assert framework.session is not None
    del state.peers[framework.session]
    state.deadlines.cancel(SessionSilence(framework.session))
    state.deadlines.cancel(ResendTerminalUpdates(framework.framework_id))
    framework.move(FrameworkState.DISCONNECTED)
    state.allocator.connect(framework.framework_id, False)
    for offer in list(framework.offers.values()):
        yield from return_offer(state, offer, "rescinded", message, now)
    yield from recall_of(state, framework.framework_id)
    state.deadlines.set(FailoverTimeout(framework.framework_id), now + framework.failover_timeout_s)
    yield Happened(FrameworkLeft(framework.framework_id, "disconnected", message))


def remove(state: State, framework: Framework, message: str, now: float) -> Iterator[Effect]:
    """Remove a framework for good and kill its tasks.

    The state holds it until the last of its tasks has ended.
    """
    if framework.session is not None:
        yield from disconnect(state, framework, message, now)
    state.deadlines.cancel(FailoverTimeout(framework.framework_id))
    framework.move(FrameworkState.REMOVED)
    yield Save(framework.record())
    yield from on_task.forget_all(framework, verdicts.begin_run(state, framework, ""))
    forgotten = state.removed.add(framework.framework_id, framework.is_unrecorded)
    if forgotten is not None:
        yield Save(ForgetFramework(forgotten))
    for task in list(framework.tasks.values()):
        if task.task_id not in framework.tasks:
            # It was queued in a group, and has ended with another of it.
            continue
        is_unreachable = task.state is TaskState.UNREACHABLE and not task.is_absent
        if task.is_queued:
            reason, ended = Reason.FRAMEWORK_REMOVED, "its framework was removed"
            yield from on_task.end_queued(state, task, TaskState.KILLED, reason, ended, now)
        elif task.state.is_terminal or is_unreachable:
            yield from on_task.acknowledge(state, task.status)
            yield from on_task.drop(state, task)
        else:
            yield from on_task.kill(state, task, None, Reason.FRAMEWORK_REMOVED, now)
    yield from _end_holds(state, framework, (), now)
    yield Happened(FrameworkLeft(framework.framework_id, "removed", message))
    on_task.forget_removed(state, framework.framework_id)


def on_failover_timeout(state: State, framework_id: FrameworkId, now: float) -> Iterator[Effect]:
    """Remove a framework that is still disconnected."""
    framework = state.frameworks.get(framework_id)
    if framework is not None and framework.state is FrameworkState.DISCONNECTED:
        yield from remove(state, framework, "its failover timeout ended", now)


def _end_holds(
    state: State, framework: Framework, roles: tuple[Role, ...], now: float
) -> Iterator[Effect]:
    """End the holds that a framework has outside `roles`: nothing offers them to it there."""
    for hold in list(state.holds.values()):
        if hold.framework_id == framework.framework_id and hold.role not in roles:
            left = "was removed" if framework.is_removed else f"has left role {hold.role}"
            yield from end_hold(state, hold, "owner_removed", f"its framework {left}", now)


def adopt(state: State, framework_id: FrameworkId, role: Role | None, now: float) -> Framework:
    """Add an unknown framework whose tasks an agent reported; the caller saves it.

    `role` is the role of the first task, if the agent knows it.
    """
    framework = state.add_framework(
        framework_id, "", (role or DEFAULT_ROLE,), state.settings.return_timeout_s
    )
    framework.is_unrecorded = True
    if state.removed.refuses(framework_id):
        framework.move(FrameworkState.REMOVED)
        return framework
    state.deadlines.set(FailoverTimeout(framework_id), now + framework.failover_timeout_s)
    return framework


def own_roles(named: tuple[Role, ...], roles: tuple[Role, ...]) -> tuple[Role, ...]:
    """Return `named`; raises InvalidRequest if one is not among the framework's `roles`."""
    for role in named:
        if role not in roles:
            raise errors.InvalidRequest(f"role {role[:80]!r} is not one of the framework's")
    return named


def _check(state: State, event: Subscribe, now: float) -> None:
    if event.framework_id:
        check_id("framework", event.framework_id)
        # In the window, the store that assigned the id may be lost.
        if state.has_yet_to_issue(event.framework_id) and now >= state.adopts_unproven_until:
            raise errors.NotFound(f"no framework {event.framework_id}")
        _check_owner(state, event)
        known = state.frameworks.get(event.framework_id)
        if state.removed.refuses(event.framework_id) if known is None else known.is_removed:
            raise errors.Removed(
                f"framework {event.framework_id} was removed; subscribe without an id"
            )
        if known is not None and event.client_id in known.earlier_clients:
            # The earlier run may have lost its session before it received this error.
            raise errors.FailedOver("a newer run of this framework's program has taken over")
    if not event.name or len(event.name) > MAX_NAME:
        raise errors.InvalidRequest(f"a framework's name has 1 to {MAX_NAME} characters")
    check_roles(event.roles)
    _check_permission(state, event)
    _check_levels(state, event)
    if not event.framework_id and len(state.frameworks) >= state.settings.frameworks:
        raise errors.Unavailable(
            f"{len(state.frameworks)} frameworks are known; no more are admitted"
        )
    check_demands(event.demands, event.roles)
    own_roles(event.suppressed_roles, event.roles)
    if not 0 <= event.failover_timeout_s <= MAX_WAIT_S:
        raise errors.InvalidRequest("the failover timeout must be between 0 and 365 days")
    if event.offer_lease_s < 0:
        raise errors.InvalidRequest("an offer's lease must not be negative")


def _check_owner(state: State, event: Subscribe) -> None:
    """Check that the framework is the caller's, or that the caller may claim it.

    Only the master assigns ids. If records were lost, a framework is known again, without an owner,
    when an agent has listed a task of it. Raises NotFound if it is another's, or unknown; the error
    is the same if it has no owner.
    """
    if not state.access.is_on:
        return
    framework = state.frameworks.get(event.framework_id)
    permissions = state.permissions(event.principal)
    if framework is None:
        if event.framework_id in state.removed:
            return
        raise errors.NotFound(f"no framework {event.framework_id}")
    if permissions.owns(framework.owner):
        return
    roles = {*framework.roles, *(task.role for task in framework.tasks.values())}
    is_free = not framework.owner and not event.principal.is_anonymous
    if not is_free or not all(permissions.decide(Action.REGISTER, role_object(r)) for r in roles):
        raise errors.NotFound(f"no framework {event.framework_id}")


def _check_permission(state: State, event: Subscribe) -> None:
    """Check that the caller may have a framework in these roles.

    Raises:
        Unauthenticated: if it has no credential.
        PermissionDenied: if it may not.
        Unavailable: if it has too many frameworks.
    """
    if not state.access.is_on:
        return
    if event.principal.is_anonymous:
        raise errors.Unauthenticated("a framework needs a credential")
    require_registered(state.permissions(event.principal), event.roles)
    owned = state.owned.frameworks(event.principal.name)
    if event.framework_id not in state.frameworks and owned >= state.settings.owner_frameworks:
        raise errors.Unavailable(f"{event.principal} has {owned} frameworks; no more are admitted")


def _check_levels(state: State, event: Subscribe) -> None:
    """Raise Conflict if the share tree, with a node for each level, would have too many."""
    new = {path for role in event.roles for path in (*ancestors(role), role)}
    known = state.allocator.queries.roles_in_use()
    added = sum(path not in known for path in new)
    # A framework that reconnects with the same roles adds none.
    if added and len(known) + added > state.settings.role_levels:
        most = state.settings.role_levels
        raise errors.Conflict(f"the cluster's roles would have more than {most} levels together")


def _connect(state: State, framework: Framework, event: Subscribe, now: float) -> Iterator[Effect]:
    before = framework.record()
    if framework.roles != event.roles:
        for task in [each for each in framework.queues if each.role not in event.roles]:
            message = f"its framework has left role {task.role}"
            if task.is_queued:
                yield from on_task.end_queued(
                    state, task, TaskState.DROPPED, Reason.TASK_INVALID, message, now
                )
        yield from _end_holds(state, framework, event.roles, now)
        # Tasks keep the roles that they were launched in; demand is declared again.
        framework.roles = event.roles
        state.allocator.set_demand(framework.framework_id, ())
        state.allocator.set_roles(framework.framework_id, event.roles)
    framework.principal = event.principal
    if state.access.is_on and not framework.owner:
        state.set_owner(framework, event.principal.name)
    framework.name, framework.failover_timeout_s = event.name, event.failover_timeout_s
    if (framework.name, framework.owner) != (before.name, before.owner):
        for hold in state.holds.values():
            if hold.framework_id == framework.framework_id:
                # It counts for another account from now on.
                state.usage.touch(hold.hold_id)
    framework.hostname, framework.webui_url = event.hostname, event.webui_url
    lease_s = event.offer_lease_s or state.settings.offer_lease_s
    framework.offer_lease_s = min(lease_s, state.settings.max_offer_lease_s)
    if event.client_id != framework.client_id:
        framework.epoch += bool(framework.client_id)
        yield from on_task.forget_all(
            framework, verdicts.begin_run(state, framework, event.client_id)
        )
    framework.last_received = framework.connected_at = now
    framework.move(FrameworkState.CONNECTED, event.session)
    state.peers[event.session] = framework
    state.deadlines.cancel(FailoverTimeout(framework.framework_id))
    state.deadlines.set(SessionSilence(event.session), now + state.settings.agent_timeout_s)
    if framework.record() != before or not event.framework_id:
        yield Save(framework.record())
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
    """Order the framework's agents to resend updates, and send the statuses of the master's own."""
    assert framework.session is not None
    for agent_id in {task.agent_id: None for task in framework.tasks.values()}:
        agent = state.agents.get(agent_id)
        if agent is not None and agent.session is not None:
            yield Send(agent.session, ResendUpdates(framework.framework_id))
    unsent: list[TaskStatus] = []
    for task in framework.tasks.values():
        # If the agent has sent a later status, the agent resends that, after all earlier ones.
        if task.is_unsent and not task.status.needs_acknowledgement:
            unsent.append(task.status)
        task.is_unsent = False
    yield from on_task.send_updates(framework.session, unsent)
    yield from on_task.resend_terminal_updates(state, framework, now)
