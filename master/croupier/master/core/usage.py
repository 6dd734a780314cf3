"""The usage ledger: what each account uses, holds and is offered, summed over time.

Each change of an amount is counted at its time, in O(resources) and without a scan; `close` ends
an accounting step, about once a minute. It moves what has come together to the bucket of the hour
and names what must be stored. Steps are measured on the monotonic clock. The wall clock only says
which hour a step belongs to: the one that its middle is in.

Rule: a step is counted once. Its rows and the time of its end are stored in one commit. The next
master counts the time since then for the tasks that it finds in the store, up to `MAX_GAP_MS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.master.core.usage_buckets import (
    CLUSTER,
    COLUMNS,
    DAY_MS,
    HOUR_MS,
    Account,
    Amounts,
    Sums,
    UsageBucket,
    UsageHistory,
    add_by_role,
)
from croupier.model.ids import HoldId, Role
from croupier.model.isolation import Usage
from croupier.model.limits import MIB
from croupier.model.scalar import MILLI

# The most time without a master that is counted for the tasks that its successor finds.
MAX_GAP_MS: Final = 900_000


@dataclass(slots=True)
class Meter:
    """An amount that changes over time, and its sum over the time since `take`.

    The sum at a time is `amount * time + offset`. So a change costs no more than the resources
    that change.
    """

    amount: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    offset: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __bool__(self) -> bool:
        return bool(self.amount or self.offset)

    def change(self, scalars: Mapping[str, int], sign: int, at_ms: int) -> None:
        """Add `scalars` to the amount, or subtract them."""
        amount, offset = self.amount, self.offset
        for name, milli in scalars.items():
            change = sign * milli
            amount[name] += change
            offset[name] -= change * at_ms

    def add(self, sums: Mapping[str, int]) -> None:
        """Add to the sum over time."""
        for name, milli in sums.items():
            self.offset[name] += milli

    def sums(self, at_ms: int) -> Amounts:
        """Return the sum over time; no zero."""
        sums = {name: self.amount[name] * at_ms + milli for name, milli in self.offset.items()}
        return {name: milli for name, milli in sums.items() if milli}

    def take(self, at_ms: int) -> Amounts:
        """Return the sum over time, and begin a new one."""
        sums = self.sums(at_ms)
        for name in [name for name, milli in self.amount.items() if not milli]:
            del self.amount[name]
        self.offset.clear()
        self.offset.update((name, -milli * at_ms) for name, milli in self.amount.items())
        return sums


def _meters() -> dict[str, Meter]:
    """Return new meters of an account, by the attributes of `Sums`, in order."""
    return {name: Meter() for name in COLUMNS}


@dataclass(slots=True)
class Closed:
    """The result of an accounting step.

    Attributes:
        changed: the accounts that changed, by bucket; `CLUSTER` stands for its capacity.
        forgotten: buckets that are no longer kept.
    """

    changed: list[tuple[UsageBucket, set[Account]]] = field(default_factory=list)
    forgotten: list[UsageBucket] = field(default_factory=list)


class UsageLedger:
    """The amounts of all accounts now, and their sums in the past.

    Attributes:
        history: the sums of the steps that are closed.
        closed_ms: the wall-clock time at the end of the last step; None before the first.
        capacity: the capacity of the cluster, which nobody changes.
        now_ms: the time of the present step of the core, on the monotonic clock.
        by_role: what each role used in this term up to the last step, with all roles below it.
        touched_holds: holds of which the idle part may have changed in this step of the core.
    """

    def __init__(
        self,
        now: float = 0.0,
        history: UsageHistory | None = None,
        closed_ms: int | None = None,
    ) -> None:
        """Begin a term at `now`, in seconds on the monotonic clock."""
        self.history = history or UsageHistory()
        self.closed_ms = closed_ms
        self.by_role: dict[Role, Amounts] = {}
        self.touched_holds: dict[HoldId, None] = {}
        self.now_ms = self._began_ms = round(now * 1000)
        self._meters: defaultdict[Account, dict[str, Meter]] = defaultdict(_meters)
        self._holds: dict[HoldId, tuple[Account, Mapping[str, int]]] = {}
        self._capacity = Meter()
        self.capacity: Mapping[str, int] = {}
        self._found: list[tuple[Meter, Amounts]] | None = None

    def note_found(self) -> None:
        """Note that everything counted so far was found in the store when the term began.

        The time since the last step is counted for it when the next step is closed.
        """
        meters = [self._capacity]
        for each in self._meters.values():
            meters += each.values()
        self._found = [(meter, dict(meter.amount)) for meter in meters]

    def use(self, account: Account, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Count resources that tasks begin to use, or with the sign -1 no longer use."""
        self._meters[account]["used"].change(scalars, sign, self.now_ms)

    def hold(self, account: Account, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Count resources of holds that are idle from now on, or with the sign -1 no longer."""
        self._meters[account]["held"].change(scalars, sign, self.now_ms)

    def offer(self, account: Account, scalars: Mapping[str, int], sign: int = 1) -> None:
        """Count resources that are offered from now on, or with the sign -1 no longer."""
        self._meters[account]["offered"].change(scalars, sign, self.now_ms)

    def measure(self, account: Account, asked: Mapping[str, int], usage: Usage) -> None:
        """Count a task that has ended, with what it asked for and what its agent measured.

        Memory counts with its peak. A measurement without a time or without a peak is incomplete,
        and not counted.
        """
        run_ms, peak = usage.run_ms, usage.memory_peak
        if not (run_ms and peak):
            return
        meters = self._meters[account]
        found = (("cpus", usage.cpu_ms * MILLI), ("mem", peak * MILLI // MIB * run_ms))
        for name, used in found:
            whole = asked.get(name, 0) * run_ms
            meters["asked"].offset[name] += whole
            meters["measured"].offset[name] += used
            meters["wasted"].offset[name] += max(0, whole - used)

    def touch(self, hold_id: HoldId) -> None:
        """Note that the idle part of a hold may have changed."""
        self.touched_holds[hold_id] = None

    def set_held(
        self, hold_id: HoldId, account: Account | None, scalars: Mapping[str, int] | None = None
    ) -> None:
        """Note the idle part of a hold from now on, and its account; None if it has ended."""
        before = self._holds.pop(hold_id, None)
        if before is not None:
            self.hold(*before, sign=-1)
        if account is not None and scalars:
            self._holds[hold_id] = account, scalars
            self.hold(account, scalars)

    def set_capacity(self, capacity: Mapping[str, int]) -> None:
        """Note the capacity of the cluster from now on. O(resources)."""
        self._capacity.change(self.capacity, -1, self.now_ms)
        self._capacity.change(capacity, 1, self.now_ms)
        self.capacity = capacity

    def close(self, wall_ms: int) -> Closed:
        """End an accounting step at `now_ms`, which is `wall_ms` on the wall clock.

        O(accounts with resources), and once an hour O(accounts of an hour).
        """
        self._count_gap(wall_ms)
        step_ms = self.now_ms - self._began_ms
        # A clock that was set back to its beginning leaves no room for the step.
        bucket = self.history.bucket(max(0, wall_ms - step_ms // 2), HOUR_MS)
        changed = {CLUSTER}
        for account, meters in list(self._meters.items()):
            if sums := Sums(*(each.take(self.now_ms) for each in meters.values())):
                add_by_role(self.by_role, account.role, sums.used)
                changed.add(bucket.add(account, sums))
            if not any(meters.values()):
                del self._meters[account]
        bucket.add_capacity(self._capacity.take(self.now_ms), step_ms)
        self._began_ms, self.closed_ms = self.now_ms, wall_ms
        closed = Closed([(bucket, changed)])
        for hour in self.history.surplus_hours():
            day = self.history.bucket(hour.start_ms, DAY_MS)
            closed.changed.append((day, {CLUSTER, *day.merge(hour)}))
            closed.forgotten.append(hour)
        # After the hours: one of them may have been added to a day that is too old itself.
        closed.forgotten += self.history.surplus_days()
        return closed

    def _count_gap(self, wall_ms: int) -> None:
        """Count the time before this term for what was found in the store when it began."""
        found, self._found = self._found, None
        if found is None or self.closed_ms is None:
            return
        before_ms = wall_ms - self.closed_ms - (self.now_ms - self._began_ms)
        gap_ms = max(0, min(before_ms, MAX_GAP_MS))
        self._began_ms -= gap_ms
        for meter, amounts in found:
            meter.add({name: milli * gap_ms for name, milli in amounts.items()})

    def buckets_now(self, wall_ms: int) -> list[UsageBucket]:
        """Return all buckets, with what has come together since the last step in the present hour.

        O(buckets + accounts of an hour).
        """
        start_ms = wall_ms // HOUR_MS * HOUR_MS
        present = UsageBucket(start_ms, HOUR_MS)
        if start_ms in self.history.hours:
            present.merge(self.history.hours[start_ms])
        for account, meters in self._meters.items():
            if sums := Sums(*(each.sums(self.now_ms) for each in meters.values())):
                present.add(account, sums)
        present.add_capacity(self._capacity.sums(self.now_ms), self.now_ms - self._began_ms)
        past = [each for each in self.history if each.key != present.key]
        return [*past, present]

    def amounts(self, account: Account) -> Sums:
        """Return what an account has now, in thousandths of a unit."""
        amounts = (each.amount for each in self._meters.get(account, {}).values())
        return Sums(*({name: milli for name, milli in each.items() if milli} for each in amounts))

    def accounts(self) -> list[Account]:
        """Return the accounts that have or had resources since the last step."""
        return list(self._meters)
