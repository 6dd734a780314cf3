"""Accounting: what the usage ledger counts, and the steps in which it is stored.

Tasks and offers are counted where they begin and end. The capacity of the cluster, and the idle
part of holds, follow from the state after each step of the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from croupier.master.allocator.past_use import PastUse
from croupier.master.core import hold_charges
from croupier.master.core.budgets import review_budgets
from croupier.master.core.effects import Effect, Save
from croupier.master.core.past_use import past_use
from croupier.master.core.state import State
from croupier.master.core.usage_buckets import Account
from croupier.master.core.usage_records import deletions, record_of
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings


def begin_step(state: State, now: float) -> None:
    """Begin a step of the core at `now`. O(1), and O(holds that the last step changed)."""
    usage = state.usage
    if usage.touched_holds or usage.capacity is not state.allocator.queries.total:
        count_changes(state)
    usage.now_ms = round(now * 1000)


def count_changes(state: State) -> None:
    """Count what the last step changed: the capacity, and the idle part of holds."""
    usage = state.usage
    usage.set_capacity(state.allocator.queries.total)
    for hold_id in usage.touched_holds:
        hold = state.holds.get(hold_id)
        if hold is None or not hold.is_charged:
            usage.set_held(hold_id, None)
            continue
        framework = state.frameworks.get(hold.framework_id)
        account = Account(hold.role, "") if framework is None else framework.account(hold.role)
        usage.set_held(hold_id, account, hold_charges.idle(state, hold).scalars)
    usage.touched_holds.clear()


def on_accounting(state: State, wall_ms: int) -> Iterator[Effect]:
    """End an accounting step, store the accounts that it changed, and review budgets."""
    closed = state.usage.close(wall_ms)
    for bucket, accounts in closed.changed:
        for account in sorted(accounts):
            yield Save(record_of(bucket, account, wall_ms))
    for bucket in closed.forgotten:
        yield from map(Save, deletions(bucket))
    apply_past_use(state)
    yield from review_budgets(state)


def apply_past_use(state: State) -> None:
    """Let what roles with a half-life have used change their weights, up to the last step."""
    state.allocator.set_past(past_after(state, {}))


def past_after(state: State, changes: Mapping[Role, RoleSettings]) -> dict[Role, PastUse]:
    """Return the past use up to the last step after a change of settings."""
    usage = state.usage
    if usage.closed_ms is None:
        return {}
    return past_use(usage.history, state.allocator.queries, usage.closed_ms, changes)
