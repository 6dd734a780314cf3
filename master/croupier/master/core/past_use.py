"""Decayed use: what each role used, the more recent the more.

Use of some age counts by 2 ** (-age / half-life), so that of one half-life ago counts half. A role
with a half-life is compared with its siblings, by its own half-life; see `allocator.past_use` for
what follows. A sibling counts if it used anything in that past, or holds or wants something now:
the others claim nothing. The frameworks right in the parent role count as one sibling, with the
weight of all of them.

All numbers are integers. A bucket counts by the age of its middle. Its weight is exact to
2 ** -16 of itself, and a role's decayed use to 2 ** -31 of the cluster.

Everything is derived from the usage ledger, so a failover loses nothing. Up to the first accounting
step after it, a role that used and holds nothing counts only as its own sibling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Final

from croupier.master.allocator.past_use import WHOLE, PastUse, compare
from croupier.master.allocator.queries import Queries
from croupier.master.core.usage_buckets import Amounts, UsageBucket, UsageHistory
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings, parent_of

_TOP: Final = Role("")
_BITS: Final = 60
_STEPS: Final = 16
# The natural logarithm of 2, in parts of `WHOLE`: all of the past weighs half-life / ln 2.
_LN_2: Final = 2_977_044_472


def _roots() -> Iterator[int]:
    """Yield 2 ** (-1/2), 2 ** (-1/4), ... in parts of 2 ** _BITS, rounded down."""
    root = 1 << (_BITS - 1)
    for _ in range(_STEPS):
        root = isqrt(root << _BITS)
        yield root


_ROOTS: Final = tuple(_roots())


def weight_of_age(age_ms: int, half_life_ms: int) -> int:
    """Return 2 ** (-age / half-life) in parts of `WHOLE`; the future counts as the present."""
    halvings, rest = divmod(max(age_ms, 0), half_life_ms)
    if halvings >= WHOLE.bit_length():
        return 0
    # The binary digits of the fraction of a half-life choose the roots of 1/2.
    digits, weight = (rest << _STEPS) // half_life_ms, 1 << _BITS
    for place, root in enumerate(_ROOTS, 1):
        if digits >> (_STEPS - place) & 1:
            weight = weight * root >> _BITS
    return weight * WHOLE >> (_BITS + halvings)


def past_use(
    history: UsageHistory,
    queries: Queries,
    now_ms: int,
    changes: Mapping[Role, RoleSettings] | None = None,
) -> dict[Role, PastUse]:
    """Return the past use of the roles that have a half-life, now or after `changes`.

    `now_ms` is the time in milliseconds since the epoch. O(buckets x roles x resources), and
    nothing without a half-life.
    """
    by_half_life: dict[int, list[Role]] = {}
    roles = {**queries.roles(), **(changes or {})}
    for role, settings in roles.items():
        if settings.half_life_ms:
            by_half_life.setdefault(settings.half_life_ms, []).append(role)
    found: dict[Role, PastUse] = {}
    for half_life_ms, of_it in by_half_life.items():
        decayed = _DecayedUse(history, queries, roles, now_ms, half_life_ms)
        found.update((role, decayed.of(role)) for role in of_it)
    return found


class _DecayedUse:
    """The decayed use of all roles, by one half-life."""

    def __init__(
        self,
        history: UsageHistory,
        queries: Queries,
        settings: Mapping[Role, RoleSettings],
        now_ms: int,
        half_life_ms: int,
    ) -> None:
        self._queries, self._settings = queries, settings
        self._buckets = [
            (weight, bucket)
            for bucket in history
            if (weight := weight_of_age(now_ms - _middle_ms(bucket), half_life_ms))
        ]
        self._capacity: Amounts = {}
        counted = 0
        for weight, bucket in self._buckets:
            counted += weight * bucket.counted_ms
            _add(self._capacity, bucket.capacity, weight)
        self._roles: dict[Role, set[Role]] = {}
        for role in set[Role]().union(*(bucket.by_role for _, bucket in self._buckets)):
            self._roles.setdefault(parent_of(role) or _TOP, set()).add(role)
        # The part of the past that the ledger knows; the rest counts as divided by weight.
        self._known = min(counted * _LN_2 // (half_life_ms * WHOLE), WHOLE)
        self._used: dict[Role, Amounts] = {}
        self._siblings: dict[Role, dict[Role, tuple[int, int]]] = {}
        self._due: dict[Role, int] = {_TOP: WHOLE}

    def of(self, role: Role) -> PastUse:
        """Return the past use of a role."""
        parent = parent_of(role) or _TOP
        siblings = self._siblings_below(parent)
        weight, used = siblings.get(role) or (self._weight(role), self._part(self._used_by(role)))
        everyone = {**siblings, role: (weight, used)}
        return compare(weight, used, list(everyone.values()), self._due_of(parent))

    def _due_of(self, role: Role) -> int:
        """Return the part of the cluster that a role was due by weight alone."""
        due = self._due.get(role)
        if due is None:
            parent = parent_of(role) or _TOP
            weight = self._weight(role)
            siblings = {each: w for each, (w, _) in self._siblings_below(parent).items()}
            weights = sum({**siblings, role: weight}.values())
            due = self._due[role] = self._due_of(parent) * weight // weights
        return due

    def _siblings_below(self, parent: Role) -> dict[Role, tuple[int, int]]:
        """Return the weights and parts of those right below a role that count.

        The frameworks that are right in the role have the name of the role itself.
        """
        found = self._siblings.get(parent)
        if found is None:
            alive, own_weight = self._queries.alive_below(parent)
            below = self._roles.get(parent, set())
            used = {role: self._used_by(role) for role in sorted(below.union(alive))}
            parts = {role: (self._weight(role), self._part(each)) for role, each in used.items()}
            found = {role: each for role, each in parts.items() if each[1] or role in alive}
            if parent != _TOP:
                own = dict(self._used_by(parent))
                for each in used.values():
                    _add(own, each, -1)
                own_part = self._part(own)
                if own_part or own_weight:
                    found[parent] = own_weight or RoleSettings().weight, own_part
            self._siblings[parent] = found
        return found

    def _used_by(self, role: Role) -> Amounts:
        used = self._used.get(role)
        if used is None:
            used = self._used[role] = {}
            for weight, bucket in self._buckets:
                if role in bucket.by_role:
                    _add(used, bucket.by_role[role], weight)
        return used

    def _part(self, used: Amounts) -> int:
        """Return the dominant part of the cluster's past, in parts of `WHOLE`."""
        parts = (
            amount * self._known // self._capacity[name]
            for name, amount in used.items()
            if self._capacity.get(name)
        )
        return max(parts, default=0)

    def _weight(self, role: Role) -> int:
        return self._settings.get(role, RoleSettings()).weight


def _middle_ms(bucket: UsageBucket) -> int:
    return bucket.start_ms + bucket.length_ms // 2


def _add(total: Amounts, amounts: Mapping[str, int], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times
