"""Records of the usage ledger: one for each account and bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from typing import Any

from croupier.master.core.usage_buckets import (
    CLUSTER,
    COLUMNS,
    DAY_MS,
    HOUR_MS,
    Account,
    Sums,
    UsageBucket,
    UsageHistory,
)
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.value import value


@value
class UsageRecord:
    """What an account had in a bucket; without a role, the capacity of the cluster.

    Raises InvalidRequest if there is no such bucket, or something in it is below 0.

    Attributes:
        start_ms: the start of the bucket, in milliseconds since the epoch.
        used, held, offered, asked, measured, wasted: as in `usage_buckets.Sums`.
        counted_ms: of the cluster: the time that was counted in the bucket.
        closed_ms: of the cluster: the end of the last step in it, in milliseconds since the epoch.
    """

    start_ms: int
    length_ms: int
    role: Role
    framework: str
    principal: str
    label: str
    used: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    offered: Mapping[str, int] = field(default_factory=dict)
    counted_ms: int = 0
    closed_ms: int = 0
    asked: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)
    wasted: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.length_ms not in (HOUR_MS, DAY_MS) or self.start_ms % self.length_ms:
            raise InvalidRequest("usage is kept by whole hours and days")
        amounts = chain.from_iterable(getattr(self, name).values() for name in COLUMNS)
        if min(amounts, default=0) < 0 or self.counted_ms < 0:
            raise InvalidRequest("usage is not below 0")

    @property
    def account(self) -> Account:
        """The account that it is of."""
        return Account(self.role, self.framework, self.principal, self.label)


@value
class ForgetUsage:
    """Deletion of the record of an account and bucket."""

    start_ms: int
    length_ms: int
    role: Role
    framework: str
    principal: str
    label: str


UsageRow = UsageRecord | ForgetUsage


def usage_key(row: UsageRow) -> str:
    """Return a key that is unique among accounts and buckets."""
    names = (row.role, row.framework, row.principal, row.label)
    return repr((row.start_ms, row.length_ms, *names))


def record_of(bucket: UsageBucket, account: Account, closed_ms: int) -> UsageRecord:
    """Return the record of an account in a bucket."""
    place = (bucket.start_ms, bucket.length_ms, *account)
    if account == CLUSTER:
        capacity = dict(bucket.capacity)
        return UsageRecord(*place, used=capacity, counted_ms=bucket.counted_ms, closed_ms=closed_ms)
    sums = bucket.accounts[account]
    columns: dict[str, Any] = {name: dict(getattr(sums, name)) for name in COLUMNS}
    return UsageRecord(*place, **columns)


def deletions(bucket: UsageBucket) -> Iterator[ForgetUsage]:
    """Return the deletions of all records of a bucket, in order."""
    for account in sorted((CLUSTER, *bucket.accounts)):
        yield ForgetUsage(bucket.start_ms, bucket.length_ms, *account)


def history_of(records: Iterable[UsageRecord]) -> tuple[UsageHistory, int | None]:
    """Return the history that records make, and the end of the last step; None without one."""
    history = UsageHistory()
    closed_ms = None
    for record in records:
        bucket = history.bucket(record.start_ms, record.length_ms)
        if record.account == CLUSTER:
            bucket.add_capacity(record.used, record.counted_ms)
            closed_ms = max(closed_ms or 0, record.closed_ms)
        else:
            sums = Sums(*(dict(getattr(record, name)) for name in COLUMNS))
            # Not added together with others: its record would stay, and count a second time.
            bucket.restore(record.account, sums)
    return history, closed_ms
