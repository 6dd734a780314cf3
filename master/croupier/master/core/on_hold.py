"""Holds: made, released, expired, and back with their agent.

A hold that ends leaves its tasks alone: they are tasks of the agent from then on, and charged
as before. Its unused part is free at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping

from croupier.master.core import hold_charges
from croupier.master.core.agents import Agent
from croupier.master.core.calls import MakeHold
from croupier.master.core.deadlines import HoldReview
from croupier.master.core.effects import Effect, Happened, Save, Send
from croupier.master.core.events import Claim, Register
from croupier.master.core.facts import HoldEnd, HoldEnded, HoldMade
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import MAX_HOLDS, Hold, HoldState
from croupier.master.core.on_allocation import rescind
from croupier.master.core.records import ForgetHold
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import SetVolume
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, shortened
from croupier.model.ids import (
    DEFAULT_ROLE,
    MAX_ID_BYTES,
    NO_FRAMEWORK,
    NO_HOLD,
    AgentId,
    FrameworkId,
    HoldId,
    Role,
    check_id,
)
from croupier.model.isolation import Feature
from croupier.model.limits import MAX_WAIT_S
from croupier.model.resources import NOTHING, Resources, sum_of
from croupier.model.roles import ancestors
from croupier.model.task import TaskInfo
from croupier.model.verdict import OperationVerdict
from croupier.model.volume import MAX_VOLUME_ROLE, MIB, Volume


def check_hold(
    state: State, wanted: MakeHold, maker: FrameworkId, agent: Agent, role: Role
) -> None:
    """Check what can be checked of a new hold without its agent.

    Raises InvalidRequest if it is malformed; Conflict if its id is in use, or its maker has too
    many holds.
    """
    check_id("hold", wanted.hold_id)
    if not wanted.resources:
        raise InvalidRequest(f"hold {wanted.hold_id} is of no resources")
    if wanted.ttl_ms > MAX_WAIT_S * 1000:
        raise InvalidRequest("the time to live of a hold is at most 365 days")
    if wanted.volume:
        _check_volume(wanted, agent, role)
    if wanted.hold_id in state.holds:
        raise Conflict(f"a hold with the id {wanted.hold_id} exists; ids are of one hold at a time")
    if state.holds_made[maker] >= MAX_HOLDS:
        raise Conflict(f"{MAX_HOLDS} holds were made already; release some first")


def _check_volume(wanted: MakeHold, agent: Agent, role: Role) -> None:
    amount = wanted.resources
    if set(amount.scalars) != {"disk"} or amount.ranges or amount.sets:
        raise InvalidRequest(f"volume {wanted.hold_id} must be of disk only")
    if wanted.ttl_ms:
        raise InvalidRequest(f"volume {wanted.hold_id} can have no time to live: release it")
    if wanted.for_role and len(role.encode()) > MAX_VOLUME_ROLE:
        raise InvalidRequest(f"the role of a volume has at most {MAX_VOLUME_ROLE} bytes")
    if Feature.VOLUMES not in agent.features:
        raise InvalidRequest(f"agent {agent.agent_id} is of a release without volumes")


def check_volumes(
    state: State, framework: Framework, task: TaskInfo, role: Role, at: AgentId | None = None
) -> AgentId | None:
    """Check the volumes that a task in a role names; return their agent, None if it names none.

    Raises:
        InvalidRequest: if one does not exist, is not the task's to use, or they are of two agents,
            or of another one than `at`.
    """
    agents: set[AgentId] = set()
    for mount in task.volumes:
        hold = state.holds.get(HoldId(mount.volume_id))
        is_own = hold is not None and hold.as_volume == mount.volume(framework.framework_id)
        if hold is None or not is_own or mount.role not in ("", role, *ancestors(role)):
            raise InvalidRequest(
                f"task {task.task_id}: there is no volume {mount.volume_id} for it"
            )
        agents.add(hold.agent_id)
    if len(agents) > 1:
        raise InvalidRequest(f"task {task.task_id} names volumes of several agents")
    place = next(iter(agents), None)
    if at is not None and place not in (None, at):
        raise InvalidRequest(f"the volumes of task {task.task_id} are on agent {place}")
    return place


def users_of(state: State, hold: Hold) -> list[Task]:
    """Return the live tasks that use a volume."""
    return [
        task
        for task in state.agents[hold.agent_id].tasks.values()
        if not task.state.is_terminal
        and any(mount.volume_id == hold.hold_id for mount in task.info.volumes)
    ]


def check_release(state: State, hold: Hold) -> None:
    """Check that a hold may be released; raises Conflict if it is a volume that tasks use."""
    users = users_of(state, hold) if hold.volume else []
    if users:
        raise Conflict(f"task {users[0].task_id} uses volume {hold.hold_id}; end it first")


def make_hold(
    state: State,
    hold: Hold,
    now: float,
    taker: tuple[FrameworkId, Role] | None = None,
    by: str = "",
) -> Iterator[Effect]:
    """Add a hold that was checked; with `taker`, of resources that are offered to it."""
    hold_charges.add_hold(state, hold)
    hold_charges.pool_hold(state, hold, taker)
    yield from _order_volume(state.agents[hold.agent_id], hold)
    if (at := hold.review_at(now)) is not None:
        state.deadlines.set(HoldReview(hold.hold_id), at)
    yield Save(hold.record(now))
    ids = (hold.hold_id, hold.agent_id, hold.role, hold.framework_id)
    yield Happened(HoldMade(*ids, str(hold.resources), hold.ttl_s, by))


def new_hold(
    wanted: MakeHold,
    agent_id: AgentId,
    role: Role,
    framework: Framework | None,
    seq: int,
    now: float,
) -> Hold:
    """Return a hold as it was asked for; without a framework, by an operator."""
    maker = NO_FRAMEWORK if framework is None else framework.framework_id
    return Hold(
        wanted.hold_id,
        agent_id,
        role,
        NO_FRAMEWORK if wanted.for_role else maker,
        wanted.resources,
        made_by=maker,
        client_id="" if framework is None else framework.client_id,
        seq=seq,
        ttl_s=wanted.ttl_ms / 1000 if wanted.ttl_ms else None,
        since=now,
        volume=wanted.volume,
    )


def end_hold(
    state: State, hold: Hold, why: HoldEnd, message: str, now: float, by: str = ""
) -> Iterator[Effect]:
    """End a hold: rescind its offers and free its unused part; its tasks run on without it."""
    agent = state.agents[hold.agent_id]
    for offer in [each for each in agent.offers.values() if each.hold_id == hold.hold_id]:
        yield from rescind(state, offer, f"hold {hold.hold_id} has ended: {message}", now)
    tasks = hold_charges.remove_hold(state, hold)
    state.deadlines.cancel(HoldReview(hold.hold_id))
    for task in tasks:
        # A later hold may get the same id.
        yield Save(task.record())
    yield Save(ForgetHold(hold.hold_id))
    yield from _order_volume(agent, hold)
    live = sum(not task.state.is_terminal for task in tasks)
    ids = (hold.hold_id, hold.agent_id, hold.role, hold.framework_id)
    yield Happened(HoldEnded(*ids, why, live, message, by))


def _order_volume(agent: Agent, hold: Hold) -> Iterator[Send]:
    """Have the agent keep the directory of a volume, or remove that of one that has ended.

    If the agent is away, that is ordered when it registers.
    """
    if hold.volume and agent.session is not None and Feature.VOLUMES in agent.features:
        milli = 0 if hold.state is HoldState.ENDED else hold.resources["disk"]
        yield Send(agent.session, SetVolume(hold.as_volume, milli * MIB // 1000))


def shrink_hold(
    state: State, hold: Hold, amount: Resources, message: str, now: float
) -> Iterator[Effect]:
    """Take a part of what is unused of a hold for a starving framework."""
    if amount == hold.resources:
        yield from end_hold(state, hold, "preempted", message, now)
        return
    yield _shrink(state, hold, amount, now)


def _shrink(state: State, hold: Hold, amount: Resources, now: float) -> Save:
    state.allocator.holds.shrink(hold.place, amount)
    hold.resources = hold.resources - amount
    state.usage.touch(hold.hold_id)
    return Save(hold.record(now))


def cut_from_hold(
    state: State, hold: Hold, amount: Resources, taker: tuple[FrameworkId, Role], now: float
) -> Iterator[Effect]:
    """Free a part of a hold that is offered to `taker`, for a volume of the same owner.

    The hold may be empty then: `end_empty` ends it once its offers have ended.
    """
    state.allocator.settle_offers(*taker, hold.place, (), unused=amount, offers=0)
    yield _shrink(state, hold, amount, now)


def end_empty(state: State, hold_ids: Iterable[HoldId], now: float) -> Iterator[Effect]:
    """End each of these holds whose resources were all taken by volumes."""
    holds = [state.holds[each] for each in hold_ids if each in state.holds]
    for hold in holds:
        if not hold.resources:
            yield from end_hold(state, hold, "released", "volumes took all of it", now)


def take_from_hold(state: State, task: Task, message: str, now: float) -> Iterator[Effect]:
    """Take the part of a hold that a task uses, for a starving framework; the task is in none."""
    hold = state.holds[task.hold_id]
    if task.held == hold.resources:
        yield from end_hold(state, hold, "preempted", message, now)
        return
    state.allocator.holds.resize(hold.place, task.held)
    hold.resources = hold.resources - task.held
    state.usage.touch(hold.hold_id)
    task.hold_id, task.held = NO_HOLD, NOTHING
    yield Save(task.record())
    yield Save(hold.record(now))


def release(
    state: State, framework: Framework, hold_ids: tuple[HoldId, ...], now: float
) -> Generator[Effect, None, tuple[OperationVerdict, ...]]:
    """End those of the holds that the framework has, or made for a role.

    Returns:
        a verdict for each.
    """
    verdicts = []
    for hold_id in hold_ids:
        error: CroupierError | None = None
        hold = state.holds.get(hold_id)
        if hold is None or framework.framework_id not in (hold.framework_id, hold.made_by):
            error = NotFound(
                f"no hold {hold_id[:MAX_ID_BYTES]!r} of this framework; it may have ended"
            )
        else:
            try:
                check_release(state, hold)
            except Conflict as refusal:
                error = shortened(refusal)
            else:
                yield from end_hold(state, hold, "released", "its framework released it", now)
        verdicts.append(OperationVerdict(hold_id, error))
    return tuple(verdicts)


def on_hold_due(state: State, hold: Hold, now: float) -> Iterator[Effect]:
    """End a hold whose time is over, or write down how much of it is left."""
    if hold.expires_at is not None and hold.expires_at <= now:
        yield from end_hold(state, hold, "expired", "its time to live was over", now)
        return
    at = hold.review_at(now)
    assert at is not None
    state.deadlines.set(HoldReview(hold.hold_id), at)
    yield Save(hold.record(now))


def restore_holds(state: State, agent: Agent, event: Register, now: float) -> Iterator[Effect]:
    """Hold resources of a registering agent again; end a hold for which it has no room.

    The tasks that the agent lists have their resources for certain; holds follow in their order.
    """
    live = [each for each in event.tasks if not each.latest.state.is_terminal]
    left = agent.total - sum_of(each.task.resources for each in live)
    listed = {(each.framework_id, each.task.task_id) for each in live}
    for hold in list(agent.holds.values()):
        taken = sum_of(
            task.held
            for key, task in agent.tasks.items()
            if task.hold_id == hold.hold_id and key in listed and not task.state.is_terminal
        )
        # The agent may list one as running that has ended, which this master does not know.
        has_room = taken <= hold.resources and hold.resources - taken <= left
        if has_room and agent.is_certain(hold.resources):
            left = left - (hold.resources - taken)
            hold_charges.pool_hold(state, hold)
            yield from _order_volume(agent, hold)
        else:
            message = f"agent {agent.agent_id} came back without room for it"
            yield from end_hold(state, hold, "no_room", message, now)
    yield from _sort_out_volumes(agent, event)


def _sort_out_volumes(agent: Agent, event: Register) -> Iterator[Effect]:
    """Have a registering agent remove the volumes that have ended while it was away.

    A store that may have lost records does not know whether they have ended: then they are orphans,
    which an operator releases.
    """
    is_complete = event.claim is Claim.KNOWN and not event.incomplete
    known = {hold.as_volume for hold in agent.holds.values() if hold.volume}
    left = [volume for volume in event.volumes if volume not in known]
    agent.orphans = {} if is_complete else {_orphan_id(agent, each): each for each in left}
    for volume in left if is_complete else ():
        yield Send(event.session, SetVolume(volume, 0))


def _orphan_id(agent: Agent, volume: Volume) -> HoldId:
    """Return the id under which operators find the directory of a volume that has no hold."""
    return HoldId(f"{agent.agent_id}:{volume.owner}:{volume.volume_id}".replace("/", ":"))


def holds_and_orphans(state: State) -> Mapping[HoldId, Hold]:
    """Return all holds, and each orphan as a hold that has ended. O(agents + orphans)."""
    orphans = {
        orphan: Hold(
            orphan,
            agent.agent_id,
            Role(volume.role or DEFAULT_ROLE),
            volume.framework_id,
            NOTHING,
            HoldState.ENDED,
            since=agent.connected_at or 0.0,
            volume=True,
        )
        for agent in state.agents.values()
        for orphan, volume in agent.orphans.items()
    }
    return state.holds | orphans if orphans else state.holds
