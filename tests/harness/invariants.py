"""The invariants of the state; tests, the simulator and chaos check them after every step."""

from __future__ import annotations

from collections import Counter, defaultdict

from croupier.master.allocator import Allocator
from croupier.master.allocator.node import Amounts, add_amounts
from croupier.master.allocator.pending_demand import Shape
from croupier.master.core.agents import Agent
from croupier.master.core.deadlines import HoldReview
from croupier.master.core.frameworks import Framework
from croupier.master.core.hold_charges import idle
from croupier.master.core.holds import HoldState
from croupier.master.core.messages import verdict_size
from croupier.master.core.on_accounting import count_changes
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.master.core.tokens import Tokens
from croupier.master.core.usage_buckets import Account
from croupier.model.access import ADMIN
from croupier.model.ids import FrameworkId, HoldId, Role
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources, sum_of, total_of
from croupier.model.task import TaskState
from croupier.model.task_group import GroupPart
from tests.harness.allocator_invariants import check_allocator


def check_state(state: State) -> None:
    """Assert every invariant. O(state)."""
    check_allocator(state.allocator)
    assert all(each.victim.leaf is not each.owner for each in state.preemptor._ending.values())
    check_absent(state)
    check_access(state)
    for agent in state.agents.values():
        _check_agent(state, agent)
    check_holds(state)
    check_usage(state)
    check_reservations(state)
    for framework in state.frameworks.values():
        _check_framework(state, framework)
        # Those that recovery found are decided about in the first step.
        if not state.ended_members:
            _check_gangs(framework)
    for offer in state.offers.values():
        assert state.agents[offer.agent_id].offers[offer.offer_id] is offer
        assert state.frameworks[offer.framework_id].offers[offer.offer_id] is offer
    for session, peer in state.peers.items():
        assert peer.session == session


def check_reservations(state: State) -> None:
    """Assert that no two reservations overlap, and that exactly those that bind are pooled."""
    known = list(state.reservations.values())
    for each in known:
        assert len(set(each.agent_ids)) == len(each.agent_ids) <= each.wanted.agents
        for other in known:
            if other is not each and not set(each.agent_ids).isdisjoint(other.agent_ids):
                assert not each.times.overlaps(other.times), (each, other)
    pooled = {
        (agent_id, reservation.name)
        for agent_id in state.agents
        for reservation in state.allocator.reservations.of(agent_id)
        if reservation.name in state.reservations
    }
    assert pooled == {
        (agent_id, each.reservation_id)
        for each in known
        if each.binds
        for agent_id in each.agent_ids
        if agent_id in state.agents
    }


def check_usage(state: State) -> None:
    """Assert that the usage ledger counts each task, each offer, and what is idle of each hold."""
    count_changes(state)
    used: dict[Account, Amounts] = defaultdict(dict)
    held: dict[Account, Amounts] = defaultdict(dict)
    offered: dict[Account, Amounts] = defaultdict(dict)
    for framework in state.frameworks.values():
        for task in framework.tasks.values():
            if task.is_counted:
                assert task.account is not None, task.task_id
                add_amounts(used[task.account], task.info.resources.scalars, 1)
        for offer in framework.offers.values():
            add_amounts(offered[framework.account(offer.role)], offer.resources.scalars, 1)
    for hold in state.holds.values():
        owner = state.frameworks.get(hold.framework_id)
        account = owner.account(hold.role) if owner else Account(hold.role, "")
        if hold.is_charged:
            add_amounts(held[account], idle(state, hold).scalars, 1)
    ledger = state.usage
    for account in {*ledger.accounts(), *used, *held, *offered}:
        counted = ledger.amounts(account)
        assert counted.used == used[account], account
        assert counted.held == held[account], account
        assert counted.offered == offered[account], account
    for bucket in ledger.history:
        bucket.check()


def queued_of(allocator: Allocator, framework_id: FrameworkId) -> dict[tuple[Role, Shape], int]:
    """Return how many submitted tasks of each role and shape wait for an agent."""
    return {
        (leaf.role, shape): pending.demand.count or 0
        for leaf in allocator._members.leaves(framework_id)
        for shape, pending in leaf.queued.items()
    }


def check_absent(state: State) -> None:
    """Assert that the allocator charges absent agents for their tasks."""
    charges = state.allocator.charges
    held: Amounts = {}
    for agent_id, capacity in charges.absent.items():
        agent = state.agents[agent_id]
        unused = [hold.unused for hold in agent.holds.values()]
        used = total_of([state.used(agent), *unused]).scalars
        assert agent.is_absent
        assert all(milli <= capacity.get(name, 0) for name, milli in used.items()), agent_id
        assert all(milli <= capacity[name] for name, milli in agent.total.scalars.items())
        add_amounts(held, used, 1)
    assert len(charges.absent) == sum(agent.is_absent for agent in state.agents.values())
    assert charges.absent_held == held


def check_tokens(tokens: Tokens) -> None:
    """Assert that all indexes agree."""
    bound = {token.agent_id: key for key, token in tokens._agents.items()}
    assert bound == tokens._of_agents
    assert len(bound) == len(tokens._agents)
    assert all(each.agent_id is None for each in tokens._others.values())
    for each in (tokens._others, tokens._agents):
        assert all(token.token_id == key for key, token in each.items())


def check_access(state: State) -> None:
    """Assert that tokens and the counts of owners agree with the rest of the state."""
    check_tokens(state.tokens)
    owned: dict[PrincipalName, tuple[int, int]] = {}
    for framework in state.frameworks.values():
        frameworks, tasks = owned.get(framework.owner, (0, 0))
        owned[framework.owner] = (frameworks + 1, tasks + len(framework.tasks))
    assert state.owned._counts == owned
    assert state.access.is_on == state.settings.auth
    assert not state.access.is_on or state.access.groups[ADMIN]
    for peer in state.peers.values():
        if isinstance(peer, Agent):
            assert peer.is_authenticated or not state.access.is_on
        else:
            assert peer.owner == peer.principal.name or not state.access.is_on


def _check_agent(state: State, agent: Agent) -> None:
    assert not agent.offers or agent.is_offered
    assert agent.agent_id not in state.gone
    assert agent.session is None or state.peers[agent.session] is agent
    assert all(state.offers[offer_id] is offer for offer_id, offer in agent.offers.items())
    for (framework_id, task_id), task in agent.tasks.items():
        assert state.frameworks[framework_id].tasks[task_id] is task
        is_live = not task.state.is_terminal
        assert task.is_active == (agent.in_pool and is_live), f"{task_id} {task.state.name}"
        assert task.is_absent == (agent.is_absent and is_live)
    for (framework_id, task_id), task in agent.line.items():
        assert state.frameworks[framework_id].tasks[task_id] is task
        assert task.is_lined_up
        assert task.agent_id == agent.agent_id
        assert (framework_id, task_id) not in agent.tasks
    assert bool(agent.line) == (agent.agent_id in state.lined)
    kinds = ((task.framework_id, task.kind) for task in agent.tasks.values() if task.is_active)
    assert agent.running == Counter(place for place in kinds if place[1] is not None)
    if agent.in_pool and agent.inventory is not None:
        parts = (
            state.allocator.queries.free(agent.agent_id),
            *(offer.resources for offer in agent.offers.values()),
            *(
                amount
                for task in agent.tasks.values()
                if task.is_active
                for _, amount in task.parts()
            ),
            *(hold.resources for hold in agent.holds.values()),
        )
        assert all(map(agent.inventory.is_certain, parts)), "devices without names, or too many"
    if agent.in_pool:
        held = sum_of(
            (
                state.allocator.queries.free(agent.agent_id),
                *(offer.resources for offer in agent.offers.values() if not offer.hold_id),
                *(task.rest for task in agent.tasks.values() if task.is_active),
                *(hold.resources for hold in agent.holds.values()),
            )
        )
        assert held == agent.total, f"{agent.agent_id}: {held} is not {agent.total}"
        running = Counter(task.framework_id for task in agent.tasks.values() if task.is_active)
        assert state.allocator.queries._agents.agents[agent.agent_id].tasks == running


def check_holds(state: State) -> None:
    """Assert that each hold is whole, that its owner is charged once, and that its end is due."""
    assert state.places == {hold.place: hold for hold in state.holds.values()}
    assert +state.holds_made == Counter(hold.made_by for hold in state.holds.values())
    pooled = {
        place: each for place, each in state.allocator._agents.agents.items() if each.cut_from
    }
    assert pooled.keys() == {hold.place for hold in state.holds.values() if hold.is_pooled}
    for hold in state.holds.values():
        agent = state.agents[hold.agent_id]
        assert agent.holds[hold.hold_id] is hold
        assert hold.is_pooled == agent.in_pool, hold.hold_id
        assert (hold.state is HoldState.ABSENT) == agent.is_absent
        review_at = state.deadlines.at(HoldReview(hold.hold_id))
        assert (review_at is None) == (hold.expires_at is None)
        assert review_at is None or review_at <= (hold.expires_at or 0), "it outlives its time"
        assert not hold.framework_id or not state.frameworks[hold.framework_id].is_removed
        if hold.is_pooled:
            parts = [offer for offer in agent.offers.values() if offer.hold_id == hold.hold_id]
            assert all(
                offer.framework_id == hold.framework_id
                if hold.framework_id
                else f"{offer.role}/".startswith(f"{hold.role}/")
                for offer in parts
            ), f"{hold.hold_id} is offered to another"
            tasks = (each for each in agent.tasks.values() if each.hold_id == hold.hold_id)
            held = [each.held for each in tasks if each.is_active]
            unused = state.allocator.queries.free(hold.place)
            whole = sum_of([unused, *(offer.resources for offer in parts), *held])
            assert whole == hold.resources, f"{hold.hold_id}: {whole} is not {hold.resources}"
            assert not hold.volume or unused == whole, f"volume {hold.hold_id} is dealt"
    for agent in state.agents.values():
        for task in agent.tasks.values():
            assert bool(task.hold_id) == bool(task.held)
            assert not task.hold_id or task.hold_id in agent.holds
    _check_charged(state)


def _check_charged(state: State) -> None:
    """Assert what each framework is charged for in each role, from tasks, offers and holds.

    A framework is charged for its own holds as a whole, and for no task in them again.
    """
    charged: dict[tuple[FrameworkId, Role], Amounts] = {}

    def add(framework_id: FrameworkId, role: Role, amount: Resources) -> None:
        add_amounts(charged.setdefault((framework_id, role), {}), amount.scalars, 1)

    taken: dict[HoldId, Amounts] = {}

    def take(framework_id: FrameworkId, role: Role, hold_id: HoldId, amount: Resources) -> None:
        hold = state.holds.get(hold_id)
        if hold is None or not hold.framework_id or not hold.is_pooled:
            add(framework_id, role, amount)
        if hold is not None:
            add_amounts(taken.setdefault(hold_id, {}), amount.scalars, 1)

    for offer in state.offers.values():
        take(offer.framework_id, offer.role, offer.hold_id, offer.resources)
    for agent in state.agents.values():
        for task in agent.tasks.values():
            if task.is_counted:
                add(task.framework_id, task.role, task.rest)
                take(task.framework_id, task.role, task.hold_id, task.held)
    for hold in state.holds.values():
        if hold.state is HoldState.AWAY:
            continue
        unused = dict(hold.resources.scalars)
        if not hold.framework_id or not hold.is_pooled:
            # Of an absent agent, it is not known which tasks have ended.
            used = Resources(taken.get(hold.hold_id, {}))
            unused = dict((Resources(unused) - used.within(Resources(unused))).scalars)
            assert hold.state is HoldState.ABSENT or used <= Resources(hold.resources.scalars)
        add(*hold.owner, Resources(unused))
    leaves = state.allocator._tree.leaves
    held = {key: leaf.held for key, leaf in leaves.items() if leaf.held}
    assert held == {key: amounts for key, amounts in charged.items() if amounts}


def _check_gangs(framework: Framework) -> None:
    """Assert that a gang is queued, or placed, as a whole, and that none runs in part for long.

    One that starts again is queued once the runs of all its members have ended.
    """
    members = {(task.info.gang_id, task_id) for task_id, task in framework.tasks.items()}
    known = {(name, task_id) for name, tasks in framework.gangs.items() for task_id in tasks}
    assert known == {each for each in members if each[0]}
    assert all(framework.gangs.values())
    for tasks in framework.gangs.values():
        live = [task for task in tasks.values() if not task.state.is_terminal]
        queued = [task for task in live if task.is_queued]
        is_returning = {task.task_id in framework.queues.returning for task in queued}
        assert is_returning <= {len(queued) < len(tasks)}, "a gang is queued as a whole"
        runs = {task.requeue.count for task in live if task.requeue is not None}
        assert is_returning == {True} or len(runs) <= 1, "a gang starts again as a whole"
        placed = [task for task in live if not task.is_queued]
        assert not queued or all(task.kill is not None for task in placed), "a gang runs in part"
        gangs = [task.info.gang for task in placed if task.info.gang is not None]
        assert len({gang.hosts for gang in gangs}) <= 1, "members know the same hosts"
        assert all(bool(task.info.gang and task.info.gang.hosts) != task.is_queued for task in live)
        kept = [task for task in tasks.values() if task.is_kept_back]
        assert not kept or live or framework.is_removed, "ends are kept back, and the gang is over"
        failed = [task for task in tasks.values() if _has_failed(task)]
        for task in [] if framework.is_removed else failed:
            if len(live) > (not task.state.is_terminal):
                assert all(each.kill is not None for each in live), "a gang runs in part"


def _has_failed(task: Task) -> bool:
    """Return whether the end of a member ends its gang."""
    assert task.info.gang is not None
    if task.info.gang.part is GroupPart.SIDECAR or task.state is TaskState.FINISHED:
        return False
    return task.state.is_terminal or task.state is TaskState.UNREACHABLE


def _check_framework(state: State, framework: Framework) -> None:
    assert not framework.offers or framework.session is not None
    assert framework.session is None or state.peers[framework.session] is framework
    assert all(state.offers[offer_id] is offer for offer_id, offer in framework.offers.items())
    framework_id = framework.framework_id
    described = sum(task.info.size for task in framework.tasks.values())
    assert state.descriptions.of(framework_id) == described
    assert state.verdicts.of(framework_id) == sum(map(verdict_size, framework.verdicts.values()))
    ended = sum(task.state.is_terminal for task in framework.tasks.values())
    assert framework.ended == ended
    for task_id, task in framework.tasks.items():
        assert task_id not in framework.used_ids
        agent = state.agents.get(task.agent_id)
        if task.is_orphan:
            assert task.state.is_terminal
            assert agent is None or (framework_id, task_id) not in agent.tasks
        elif task.is_lined_up:
            assert task.state is TaskState.QUEUED
            assert task.queued is not None
            assert agent is not None
            assert agent.line[framework_id, task_id] is task
        elif task.is_queued:
            assert task.state is TaskState.QUEUED
            assert not task.agent_id
            assert task.queued is not None
        else:
            assert agent is not None
            assert agent.tasks[framework_id, task_id] is task
    grouped = {(task.info.group_id, task_id) for task_id, task in framework.tasks.items()}
    known = {(name, task_id) for name, tasks in framework.groups.items() for task_id in tasks}
    assert known == {each for each in grouped if each[0]}
    assert all(framework.groups.values())
    for tasks in framework.groups.values():
        live = [task for task in tasks.values() if not task.state.is_terminal]
        assert len({task.agent_id for task in live}) <= 1, "a group is on one agent"
        assert len({task.is_queued for task in live}) <= 1, "a group is queued as a whole"
        assert not any(task.is_lined_up for task in live)
    queued = {task.task_id for task in framework.tasks.values() if task.is_queued}
    assert {task.task_id for task in framework.queues} == queued
    assert len(framework.queues) == len(queued)
    counts = {key: len(queue) for key, queue in framework.queues._queues.items()}
    assert queued_of(state.allocator, framework_id) == counts
    if framework.is_removed:
        assert not queued
        assert framework.tasks
