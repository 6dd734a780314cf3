"""Usage over time, as callers may view it: summed by role, framework, principal or cost center."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from heapq import nlargest
from typing import Final

from croupier.master.core.effects import PAUSE, Pause
from croupier.master.core.events import Query
from croupier.master.core.state import State
from croupier.master.core.usage_buckets import (
    COLUMNS,
    OTHERS,
    Account,
    Amounts,
    Sums,
    UsageBucket,
    add_to,
    dominant_ms,
)
from croupier.master.services.visibility import Visibility
from croupier.model.errors import InvalidRequest
from croupier.model.principal import Principal
from croupier.model.roles import ancestors
from croupier.v1 import operator_pb2 as pb

# Most names in an answer; those with the smallest shares are added together.
MAX_NAMES: Final = 1_000
# Thousandths of a unit, and milliseconds.
_MILLIONTHS: Final = 1_000_000

_NAMES: Final[Mapping[int, Callable[[Account], Iterable[str]]]] = {
    pb.USAGE_BY_FRAMEWORK: lambda account: (account.framework,),
    pb.USAGE_BY_PRINCIPAL: lambda account: (account.principal,),
    pb.USAGE_BY_LABEL: lambda account: (account.label,),
}


def _roles_of(account: Account) -> Iterable[str]:
    return account.role, *ancestors(account.role)


class _Total:
    """The sums of one name, and its dominant-share milliseconds."""

    def __init__(self) -> None:
        self.sums, self.share_ms = Sums(), 0

    def add(self, sums: Sums, share_ms: int) -> None:
        self.sums.add(sums)
        self.share_ms += share_ms


def usage_query(
    request: pb.GetUsageRequest, wall_ms: int, caller: Principal
) -> Query[pb.GetUsageResponse]:
    """Return the query of what a caller may view of the usage; `wall_ms` is the time of day.

    Raises InvalidRequest if the time ends before it begins.
    """
    is_by_role = request.by not in _NAMES
    names_in = _NAMES.get(request.by, _roles_of)
    until_ms = request.until_ms or wall_ms + 1
    if request.until_ms and request.since_ms > until_ms:
        raise InvalidRequest("the time of a report cannot end before it begins")

    def query(state: State) -> Generator[Pause, None, pb.GetUsageResponse]:
        visible = Visibility(state, caller)

        @cache
        def names_of(account: Account) -> tuple[str, ...]:
            is_visible = visible.in_role(account.role, account.principal)
            return tuple(names_in(account)) if is_visible else ()

        totals: dict[str, _Total] = defaultdict(_Total)
        counted: list[UsageBucket] = []
        for bucket in state.usage.buckets_now(wall_ms):
            if bucket.end_ms > request.since_ms and bucket.start_ms < until_ms:
                counted.append(bucket)
                _add(totals, bucket, names_of)
                yield PAUSE
        wire = _answer(counted, _bounded(totals))
        if is_by_role:
            wire.usage.sort(key=lambda view: view.name.split("/"))
        if not visible.has_cluster:
            wire.capacity.clear()
        return wire

    return query


def _add(
    totals: dict[str, _Total],
    bucket: UsageBucket,
    names_of: Callable[[Account], Iterable[str]],
) -> None:
    found: dict[str, Sums] = defaultdict(Sums)
    for account, sums in bucket.accounts.items():
        for name in names_of(account):
            found[name].add(sums)
    for name, sums in found.items():
        totals[name].add(sums, dominant_ms(sums.used, bucket.capacity, bucket.counted_ms))


def _bounded(totals: Mapping[str, _Total]) -> dict[str, _Total]:
    """Return the names with the largest shares, with all others as one more."""
    chosen = nlargest(MAX_NAMES, totals, key=lambda name: (totals[name].share_ms, name))
    kept = {name: totals[name] for name in chosen}
    for name in totals.keys() - kept.keys():
        kept.setdefault(OTHERS, _Total()).add(totals[name].sums, totals[name].share_ms)
    return kept


def _answer(counted: list[UsageBucket], totals: Mapping[str, _Total]) -> pb.GetUsageResponse:
    counted_ms = sum(bucket.counted_ms for bucket in counted)
    capacity: Amounts = {}
    for bucket in counted:
        add_to(capacity, bucket.capacity)
    return pb.GetUsageResponse(
        usage=(
            pb.UsageView(
                name=name,
                share=total.share_ms / counted_ms if counted_ms else 0.0,
                share_s=total.share_ms / 1000,
                **{name: _unit_seconds(getattr(total.sums, name)) for name in COLUMNS},
            )
            for name, total in totals.items()
        ),
        since_ms=min((bucket.start_ms for bucket in counted), default=0),
        ended_ms=max((bucket.end_ms for bucket in counted), default=0),
        counted_s=counted_ms / 1000,
        capacity=_unit_seconds(capacity),
    )


def _unit_seconds(amounts: Amounts) -> dict[str, float]:
    return {name: milli / _MILLIONTHS for name, milli in amounts.items()}
