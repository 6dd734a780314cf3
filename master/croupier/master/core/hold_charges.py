"""The charges of a hold, from when it is made until it has ended.

Rule: what the allocator charges for a hold changes together with the state of the hold.
"""

from __future__ import annotations

from croupier.master.core.holds import Hold, HoldState
from croupier.master.core.state import State
from croupier.master.core.tasks import Task
from croupier.model.ids import NO_HOLD, FrameworkId, Role
from croupier.model.resources import NOTHING, Resources, sum_of, total_of


def add_hold(state: State, hold: Hold) -> None:
    """Add a hold, which is not charged yet."""
    state.holds[hold.hold_id] = state.places[hold.place] = hold
    state.agents[hold.agent_id].holds[hold.hold_id] = hold
    state.holds_made[hold.made_by] += 1


def pool_hold(state: State, hold: Hold, taker: tuple[FrameworkId, Role] | None = None) -> None:
    """Cut a hold off its agent, which is in the pool; see `allocator.holds`."""
    held = (hold.place, hold.agent_id, hold.owner, hold.resources)
    state.allocator.holds.make(*held, taker, is_kept=hold.volume)
    hold.move(HoldState.POOLED)
    state.usage.touch(hold.hold_id)


def charge_absent_hold(state: State, hold: Hold) -> None:
    """Charge the owner of a hold for what the tasks of its absent agent do not use of it."""
    hold.unused = Resources(unused(state, hold).scalars)
    state.allocator.holds.charge_absent(hold.owner, hold.unused.scalars)
    hold.move(HoldState.ABSENT)
    state.usage.touch(hold.hold_id)


def unused(state: State, hold: Hold) -> Resources:
    """Return what no task uses of a hold. O(offers of its agent); if that is away, O(tasks)."""
    agent = state.agents[hold.agent_id]
    if hold.is_pooled:
        offers = [each for each in agent.offers.values() if each.hold_id == hold.hold_id]
        free = state.allocator.queries.free(hold.place)
        return sum_of([free, *(offer.resources for offer in offers)])
    rest = hold.resources
    for task in agent.tasks.values():
        if task.hold_id == hold.hold_id:
            # The store does not know which have ended: they may have more than all of it.
            rest = rest - task.held.within(rest)
    return rest


def idle(state: State, hold: Hold) -> Resources:
    """Return what of a hold is neither used nor offered. Costs as `unused`."""
    if hold.is_pooled:
        return state.allocator.queries.free(hold.place)
    return unused(state, hold)


def idle_in_pool(state: State) -> Resources:
    """Return what of the holds of agents in the pool is neither used nor offered. O(holds)."""
    return total_of(idle(state, hold) for hold in state.holds.values() if hold.is_pooled)


def cluster_use(state: State) -> tuple[Resources, Resources, Resources]:
    """Return the scalars that are used, offered, and held and idle. O(offers + holds).

    The allocator counts all of a hold as used.
    """
    charged, offered = state.allocator.queries.held()
    offers = [offer.resources for offer in state.offers.values() if offer.hold_id]
    of_holds = Resources(total_of(offers).scalars)
    held = total_of(idle(state, hold) for hold in state.holds.values() if hold.is_charged)
    held = Resources(held.scalars)
    return charged - of_holds - held, total_of([offered, of_holds]), held


def lose_hold(state: State, hold: Hold) -> None:
    """Stop charging for a hold. It is not offered; tasks in it hold nothing, or run on."""
    if hold.is_pooled:
        state.allocator.holds.end(hold.place)
    elif hold.state is HoldState.ABSENT:
        state.allocator.holds.release_absent(hold.owner, hold.unused.scalars)
    if hold.state is not HoldState.AWAY:
        hold.move(HoldState.AWAY)
    state.usage.touch(hold.hold_id)


def remove_hold(state: State, hold: Hold) -> list[Task]:
    """Forget a hold that is not offered; return the tasks in it, which run on without it."""
    lose_hold(state, hold)
    hold.move(HoldState.ENDED)
    agent = state.agents[hold.agent_id]
    del state.holds[hold.hold_id], state.places[hold.place], agent.holds[hold.hold_id]
    state.holds_made[hold.made_by] -= 1
    tasks = [task for task in agent.tasks.values() if task.hold_id == hold.hold_id]
    for task in tasks:
        task.hold_id, task.held = NO_HOLD, NOTHING
    return tasks
