"""Preemption: free resources for starving frameworks by rescinding offers and killing tasks.

The framework of a victim receives PREEMPT_REQUEST and may end the task itself within the grace;
then the task is killed with reason PREEMPTED. The freed resources are earmarked for the starving
framework. A victim is spared if its resources are no longer needed.

The kill of a task with a checkpoint signal is ordered at once, with the grace: the agent sends that
signal at its beginning. Such a task is not spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from croupier.master.allocator.node import Leaf
from croupier.master.allocator.preemption import Holding, PreemptionPlan
from croupier.master.allocator.starvation import min_run_ms
from croupier.master.core.authorisation import may_on_role
from croupier.master.core.deadlines import PreemptionGrace, StarvationCheck
from croupier.master.core.effects import Effect, Happened, Send
from croupier.master.core.facts import PreemptionBegun, PreemptionEnded
from croupier.master.core.frameworks import Framework
from croupier.master.core.holds import place_of
from croupier.master.core.messages import PreemptRequested
from croupier.master.core.on_allocation import rescind
from croupier.master.core.on_hold import shrink_hold, take_from_hold
from croupier.master.core.on_task import kill
from croupier.master.core.records import NO_OWNER
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.access import Action
from croupier.model.ids import AgentId, FrameworkId, OfferId, TaskId
from croupier.model.principal import Principal
from croupier.model.resources import sum_of
from croupier.model.task import Reason
from croupier.model.task_checks import MAX_GRACE_MS
from croupier.model.task_group import GroupPart

CHECK_INTERVAL_S = 1.0
RECHECK_S = 0.02
# The tasks in each executor of a framework.
InExecutors = dict[TaskId, list[Task]]


def schedule_check(state: State, now: float) -> None:
    """Schedule a check for starving frameworks, if any framework waits for more."""
    if StarvationCheck() not in state.deadlines and state.preemptor.has_unmet_demand:
        state.deadlines.set(StarvationCheck(), now + CHECK_INTERVAL_S)


def on_preemption_due(state: State, now: float) -> Iterator[Effect]:
    """Check for starving frameworks and begin preemptions for them."""
    if not state.preemptor.is_possible:
        return
    if _is_recovering(state):
        schedule_check(state, now)
        return
    plans = state.preemptor.look(lambda leaf: holdings_of(state, leaf), now)
    for plan in plans:
        yield from _begin(state, plan, now)
    if len(plans) >= state.preemptor.rules.at_once:
        state.deadlines.set(StarvationCheck(), now + RECHECK_S)
    else:
        schedule_check(state, now)


def on_grace_over(
    state: State, framework_id: FrameworkId, task_id: TaskId, now: float
) -> Iterator[Effect]:
    """Kill a victim that still runs after its grace, if it is still needed."""
    key = (framework_id, task_id)
    if not state.preemptor.is_ending(key):
        return
    framework = state.frameworks.get(framework_id)
    task = framework.tasks.get(task_id) if framework is not None else None
    if task is None or task.state.is_terminal:
        state.preemptor.ended(key)
        return
    if not state.preemptor.is_needed(key):
        state.preemptor.ended(key)
        yield Happened(PreemptionEnded(framework_id, task_id, "spared"))
        return
    yield from kill(state, task, None, Reason.PREEMPTED, now)
    yield Happened(PreemptionEnded(framework_id, task_id, "killed"))


def _is_recovering(state: State) -> bool:
    """Return whether more than a fifth of the agents are absent.

    Until they return, usage and so entitlements are incomplete.
    """
    missing = sum(agent.is_absent for agent in state.agents.values())
    return missing * 5 > len(state.agents)


def holdings_of(state: State, leaf: Leaf) -> Iterable[Holding]:
    """Return the offers, tasks and unused holds of one owner in one role that can be preempted.

    A task in a hold is freed with that part of the hold, which is smaller from then on. The unused
    part of a hold is taken back like an offer, as far as it is needed.
    """
    for hold in state.holds.values() if leaf.holds else ():
        if hold.owner == (leaf.framework_id, leaf.role) and hold.is_pooled and not hold.volume:
            unused = state.allocator.queries.free(hold.place)
            kept = (hold.agent_id, unused, hold.place, hold.since)
            if unused:
                yield Holding(leaf, *kept, is_offer=True, is_hold=True)
    framework = state.frameworks.get(leaf.framework_id)
    if framework is None:
        return
    for offer in framework.offers.values():
        if offer.role == leaf.role:
            yield Holding(
                leaf, offer.place, offer.resources, offer.offer_id, offer.made_at, is_offer=True
            )
    in_executors = by_executor(framework.tasks.values())
    least_s = max(state.preemptor.rules.min_age_s, min_run_ms(leaf) / 1000)
    for task in framework.tasks.values():
        executor_id = task.info.executor_id
        if state.preemptor.is_ending((leaf.framework_id, executor_id)):
            # What it frees is counted with its executor.
            continue
        if task.role == leaf.role and task.is_active and task.kill is None:
            live = freed_with(framework, task, in_executors)
            until = max((protected_until(each, least_s) for each in live), default=0.0)
            about = (task.task_id, task.since)
            if live:
                freed = sum_of(each.info.resources for each in live)
                yield Holding(
                    leaf,
                    task.agent_id,
                    freed,
                    *about,
                    part_of=executor_id,
                    protected_until=until,
                )
            if live == [task] and task.held:
                # Those whom the hold is for need only that part of it.
                place = place_of(task.agent_id, task.hold_id)
                yield Holding(
                    leaf, place, task.held, *about, part_of=executor_id, protected_until=until
                )


def protected_until(task: Task, least_s: float) -> float:
    """Return when a task has run for its minimum time, and for `least_s`."""
    return task.since + max(least_s, task.info.preemption.min_run_ms / 1000)


def freed_with(framework: Framework, task: Task, in_executors: InExecutors) -> list[Task]:
    """Return the tasks whose resources the end of a task frees.

    There are none for a task that ends only with others of its group. A group is taken back as a
    whole, by the end of its leader or else of its first member; an executor with its tasks. A gang
    is not taken back: its end would free much elsewhere that nobody starves for.
    """
    if task.info.gang is not None:
        return []
    live = _live_with(framework, task, in_executors)
    if task.info.group is None:
        return live
    leader = (each for each in live if each.info.part is GroupPart.LEADER)
    member = (each for each in live if each.info.part is GroupPart.MEMBER)
    return live if next(chain(leader, member), None) is task else []


def by_executor(tasks: Iterable[Task]) -> InExecutors:
    """Return those tasks of one framework that are in executors, by the executor. O(tasks)."""
    found: InExecutors = {}
    for task in tasks:
        if task.info.executor_id:
            found.setdefault(task.info.executor_id, []).append(task)
    return found


def _live_with(framework: Framework, task: Task, in_executors: InExecutors) -> list[Task]:
    """Return the tasks that hold resources and end with the task, itself among them.

    They are those of its group, and those in an executor.
    """
    unit = framework.unit_of(task)
    ending = chain(unit, *(in_executors.get(each.task_id, ()) for each in unit))
    return [each for each in ending if each.is_active]


def _begin(state: State, plan: PreemptionPlan, now: float) -> Iterator[Effect]:
    starving = plan.starving.leaf
    since = (
        f"has been below {'a guarantee' if plan.starving.by_guarantee else 'its fair share'}"
        f" for {now - plan.starving.since:.0f} s"
    )
    reason = f"framework {starving.framework_id} in role {starving.role} {since}"

    def reason_for(victim: Leaf) -> str:
        """Return the reason; it names the starving framework only to callers that may view it."""
        owner = state.frameworks.get(victim.framework_id)
        viewer = Principal(NO_OWNER if owner is None else owner.owner)
        starved = state.frameworks[starving.framework_id]
        permissions = state.permissions(viewer)
        is_visible = may_on_role(permissions, Action.VIEW, starving.role, starved.owner)
        return reason if is_visible else f"another framework {since}"

    # As a set in order: a task may be a victim, and end with its executor too.
    asked: dict[Leaf, dict[TaskId, None]] = {}
    saving: list[Task] = []
    place = state.places.get(plan.agent_id)
    agent_id = plan.agent_id if place is None else place.agent_id
    grace_s = state.preemptor.rules.grace_s
    for victim in plan.victims:
        if victim.key in state.places:
            hold = state.places[AgentId(victim.key)]
            why = reason_for(victim.leaf)
            yield from shrink_hold(state, hold, victim.resources, why, now)
            continue
        if victim.is_offer:
            offer = state.offers[OfferId(victim.key)]
            yield from rescind(state, offer, reason_for(victim.leaf), now)
            continue
        framework = state.frameworks[victim.leaf.framework_id]
        task = framework.tasks[TaskId(victim.key)]
        ending = _live_with(framework, task, by_executor(framework.tasks.values()))
        for each in ending if place is None else ():
            if each.held:
                yield from take_from_hold(state, each, reason_for(victim.leaf), now)
        asked.setdefault(victim.leaf, {}).update((each.task_id, None) for each in ending)
        if task.info.preemption.checkpoint_signal:
            saving.append(task)
            continue
        grace = PreemptionGrace(victim.leaf.framework_id, TaskId(victim.key))
        state.deadlines.set(grace, now + grace_s)
    for leaf, task_ids in asked.items():
        session = state.frameworks[leaf.framework_id].session
        if session is not None:
            message = PreemptRequested(
                tuple(task_ids), agent_id, grace_s, leaf.role, reason_for(leaf)
            )
            yield Send(session, message)
    yield Happened(
        PreemptionBegun(
            starving.framework_id,
            starving.role,
            agent_id,
            str(plan.room),
            tuple(victim.key for victim in plan.victims if not victim.is_offer),
            tuple(victim.key for victim in plan.victims if victim.is_offer),
            reason,
        )
    )
    for task in saving:
        yield from kill_with_signal(state, task, grace_s, now)
        yield Happened(PreemptionEnded(task.framework_id, task.task_id, "killed"))


def kill_with_signal(state: State, task: Task, grace_s: float, now: float) -> Iterator[Effect]:
    """Order the kill of a task with a checkpoint signal, `grace_s` and its own grace from now.

    Its agent gives it the signal at once, and the rest of the grace.
    """
    whole_ms = min(round(grace_s * 1000) + task.info.grace_ms, MAX_GRACE_MS)
    yield from kill(state, task, whole_ms, Reason.PREEMPTED, now)
