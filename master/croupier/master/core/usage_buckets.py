"""Sums of the usage ledger: one bucket for each of the latest hours, and for each day before.

Amounts are whole thousandths of a unit times milliseconds, so sums are exact. The number of
buckets is bounded, not their age: a clock that jumps far ahead deletes no history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple

from croupier.model.ids import Role
from croupier.model.roles import ancestors

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
# Hours before the latest 48 are added to their days; of those the latest 400 are kept.
MAX_HOURS: Final = 48
MAX_DAYS: Final = 400
# Most accounts in a bucket. Further accounts are added to one account of their role, and those of
# as many further roles to one account.
MAX_ACCOUNTS: Final = 1_000
MAX_DAY_ACCOUNTS: Final = 250
OTHERS: Final = "(others)"

# The label of tasks by which usage is told apart, and the longest value that is.
ACCOUNT_LABEL: Final = "cost-center"
MAX_ACCOUNT_LABEL: Final = 128

Amounts = dict[str, int]
Labels = tuple[tuple[str, str], ...]


class Account(NamedTuple):
    """The frameworks of one name, role and principal, and their tasks of one cost center.

    Attributes:
        framework: the name of the frameworks; many runs of one program share it.
        principal: the owner of the frameworks; empty without authentication.
        label: the value of the label `cost-center` of the tasks; empty if they have none.
    """

    role: Role
    framework: str
    principal: str = ""
    label: str = ""


# No role has this name: it is the account of the capacity of the whole cluster.
CLUSTER: Final = Account(Role(""), "")


@dataclass(slots=True)
class Sums:
    """What one account had in a bucket, in thousandths of a unit times milliseconds.

    Attributes:
        used: the resources of its tasks; of the account `CLUSTER`, the capacity.
        held: the resources of its holds that no task used, and that were not offered.
        offered: the resources of its outstanding offers.
        asked: the cpus and mem of its tasks that have ended and were measured.
        measured: what these tasks used of them, with the peak of the memory.
        wasted: what each of these tasks asked for and did not use.
    """

    used: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    offered: Amounts = field(default_factory=dict)
    asked: Amounts = field(default_factory=dict)
    measured: Amounts = field(default_factory=dict)
    wasted: Amounts = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Amounts, ...]:
        """The amounts of all attributes, in order."""
        return self.used, self.held, self.offered, self.asked, self.measured, self.wasted

    def __bool__(self) -> bool:
        return any(self.columns)

    def add(self, other: Sums) -> None:
        """Add the amounts of `other`."""
        for mine, more in zip(self.columns, other.columns, strict=True):
            if more:
                add_to(mine, more)


COLUMNS: Final = tuple(each.name for each in fields(Sums))


@dataclass(slots=True)
class UsageBucket:
    """What all accounts had in one hour or day (UTC).

    Attributes:
        start_ms: milliseconds since the epoch; so is `end_ms`.
        counted_ms: the time for which a master counted, at most about the length of the bucket.
        accounts: the sums of the accounts, without the cluster's.
        capacity: the capacity of the cluster over the time that was counted.
        by_role: the used amounts of each role, with all roles below it.
    """

    start_ms: int
    length_ms: int
    counted_ms: int = 0
    accounts: dict[Account, Sums] = field(default_factory=dict)
    capacity: Amounts = field(default_factory=dict)
    by_role: dict[Role, Amounts] = field(default_factory=dict)

    @property
    def end_ms(self) -> int:
        """The time at which the bucket ends."""
        return self.start_ms + self.length_ms

    @property
    def key(self) -> tuple[int, int]:
        """Start and length, which no other bucket has."""
        return self.start_ms, self.length_ms

    @property
    def most(self) -> int:
        """The number of accounts from which on accounts are added together."""
        return MAX_ACCOUNTS if self.length_ms == HOUR_MS else MAX_DAY_ACCOUNTS

    def add(self, account: Account, sums: Sums) -> Account:
        """Add to an account; return that account, or the one that it was added to instead."""
        if account not in self.accounts and len(self.accounts) >= self.most:
            account = Account(account.role, OTHERS)
            if account not in self.accounts and len(self.accounts) >= 2 * self.most:
                account = Account(Role(OTHERS), OTHERS)
        self.restore(account, sums)
        return account

    def restore(self, account: Account, sums: Sums) -> None:
        """Add to this very account, which the bucket had when it was stored, or may have now."""
        self.accounts.setdefault(account, Sums()).add(sums)
        add_by_role(self.by_role, account.role, sums.used)

    def add_capacity(self, capacity: Mapping[str, int], counted_ms: int) -> None:
        """Add the capacity of the cluster over a time that was counted."""
        add_to(self.capacity, capacity)
        self.counted_ms += counted_ms

    def merge(self, other: UsageBucket) -> set[Account]:
        """Add all of another bucket; return the accounts that changed."""
        self.add_capacity(other.capacity, other.counted_ms)
        return {self.add(account, sums) for account, sums in other.accounts.items()}

    def check(self) -> None:
        """Assert that the sums by role are those of the accounts."""
        total: dict[Role, Amounts] = {}
        for account, sums in self.accounts.items():
            add_by_role(total, account.role, sums.used)
        assert total == self.by_role
        assert len(self.accounts) <= 2 * self.most + 1


@dataclass(slots=True)
class UsageHistory:
    """The buckets, by their starts."""

    hours: dict[int, UsageBucket] = field(default_factory=dict)
    days: dict[int, UsageBucket] = field(default_factory=dict)

    def __iter__(self) -> Iterator[UsageBucket]:
        """Return all buckets, oldest first."""
        buckets = [*self.days.values(), *self.hours.values()]
        return iter(sorted(buckets, key=lambda bucket: bucket.key))

    def bucket(self, at_ms: int, length_ms: int) -> UsageBucket:
        """Return the bucket of the hour or the day of a time."""
        buckets = self.hours if length_ms == HOUR_MS else self.days
        start_ms = at_ms // length_ms * length_ms
        return buckets.setdefault(start_ms, UsageBucket(start_ms, length_ms))

    def surplus_hours(self) -> list[UsageBucket]:
        """Remove the oldest hours that are too many, and return them."""
        return _surplus(self.hours, MAX_HOURS)

    def surplus_days(self) -> list[UsageBucket]:
        """Remove the oldest days that are too many, and return them."""
        return _surplus(self.days, MAX_DAYS)


def account_label(labels: Labels) -> str:
    """Return the value of the label `cost-center`; empty if there is none."""
    for key, value in labels:
        if key == ACCOUNT_LABEL:
            return value[:MAX_ACCOUNT_LABEL]
    return ""


def dominant_ms(used: Mapping[str, int], capacity: Mapping[str, int], counted_ms: int) -> int:
    """Return the dominant-share milliseconds of an amount in a bucket, rounded down.

    That is the largest share of the capacity over all resources, times the time that was counted.
    An account that has half of all cpus for an hour has half an hour of dominant share, whatever
    else it has. The values of several buckets are added. The momentary dominant share, summed over
    time, is at least this: the dominant resource may change within a bucket.
    """
    shares = (
        milli * counted_ms // capacity[name] for name, milli in used.items() if capacity.get(name)
    )
    return max(shares, default=0)


def add_by_role(sums: dict[Role, Amounts], role: Role, more: Mapping[str, int]) -> None:
    """Add `more` to the sums of a role and of all roles above it."""
    for each in (role, *ancestors(role)):
        add_to(sums.setdefault(each, {}), more)


def add_to(sums: Amounts, more: Mapping[str, int]) -> None:
    """Add `more` to `sums`, which keeps no zero."""
    for name, milli in more.items():
        total = sums.get(name, 0) + milli
        if total:
            sums[name] = total
        else:
            sums.pop(name, None)


def _surplus(buckets: dict[int, UsageBucket], most: int) -> list[UsageBucket]:
    return [buckets.pop(start_ms) for start_ms in sorted(buckets)[: max(0, len(buckets) - most)]]
