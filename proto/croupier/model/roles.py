"""Roles as a tree of paths, and their settings.

`ads/prod` is within `ads`. Every role exists with the default settings until an operator changes
them. Weights and amounts are whole thousandths; amounts are of scalars only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.model.budget import Budget
from croupier.model.durations import duration_text
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.preemption import check_min_run
from croupier.model.resources import check_names, check_spelling, in_order
from croupier.model.scalar import (
    MILLI,
    check_milli,
    format_milli,
    format_scalar,
    parse_pairs,
    parse_scalar,
)

MAX_WEIGHT: Final = 1_000_000 * MILLI
# Usage is kept by hours and days, so a shorter memory would not be exact, and a longer one is lost.
MIN_HALF_LIFE_MS: Final = 3_600_000
MAX_HALF_LIFE_MS: Final = 90 * 24 * 3_600_000
# Factors of weights, in thousandths: that of a role without a half-life, and the bounds.
EVEN: Final = MILLI
LOWEST_FACTOR: Final = EVEN // 4
HIGHEST_FACTOR: Final = EVEN * 4


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """An operator's settings of a role. They apply to the resources of its whole subtree.

    Attributes:
        weight: thousandths. Of two siblings with unlimited demand, the one with twice the weight
            gets twice the share.
        resource_weights: thousandths, by resource. The weight of the role for a resource is
            `weight` times this; the default is 1000.
        guarantee: thousandths of each scalar. While the role holds less, it is allocated before
            roles that have met their guarantee or have none. 0 is none.
        limit: thousandths of each scalar that the role may hold. 0 is a limit; a scalar that is
            not named is not limited.
        preemption: False: the role neither preempts nor is preempted. None: as its parent,
            and at the top as the cluster.
        min_run_ms: no task of the role is preempted before it has run for so long. None: as its
            parent, and at the top 0.
        half_life_ms: past use counts half after this time, and changes the weight; see
            `croupier.master.core.past_use`. 0: past use does not count.
        budget: the resources times hours that its tasks may use in a period.
    """

    weight: int = MILLI
    resource_weights: Mapping[str, int] = field(default_factory=dict)
    guarantee: Mapping[str, int] = field(default_factory=dict)
    limit: Mapping[str, int] = field(default_factory=dict)
    preemption: bool | None = None
    min_run_ms: int | None = None
    half_life_ms: int = 0
    budget: Budget | None = None

    @property
    def is_default(self) -> bool:
        """Whether the settings equal those of a role that no operator changed."""
        return self.without_defaults() == RoleSettings()

    def without_defaults(self) -> RoleSettings:
        """Return the settings without default amounts, so that equal ones are equal values."""
        weights = {n: w for n, w in self.resource_weights.items() if w != MILLI}
        guarantee = {name: milli for name, milli in self.guarantee.items() if milli}
        return replace(self, resource_weights=weights, guarantee=guarantee)

    def __str__(self) -> str:
        texts = [f"weight {format_milli(self.weight)}"]
        texts += [f"weight of {n} {format_milli(w)}" for n, w in self.resource_weights.items()]
        texts += [f"guarantee {format_amounts(self.guarantee)}"] if self.guarantee else []
        texts += [f"limit {format_amounts(self.limit)}"] if self.limit else []
        texts += [f"preemption {'on' if self.preemption else 'off'}"] * (
            self.preemption is not None
        )
        if self.min_run_ms is not None:
            texts.append(f"minimum run time {duration_text(self.min_run_ms / 1000)}")
        if self.half_life_ms:
            texts.append(f"half-life {duration_text(self.half_life_ms / 1000)}")
        texts += [f"budget {self.budget}"] if self.budget is not None else []
        return ", ".join(texts)

    def check(self) -> None:
        """Check the settings.

        Raises InvalidRequest if a weight, a name or an amount is invalid, or a guarantee is above
        its limit.
        """
        check_weight("the weight", self.weight)
        check_min_run(self.min_run_ms or 0)
        if self.budget is not None:
            self.budget.check()
        for named in (self.resource_weights, self.guarantee, self.limit):
            check_names(list(named))
        for name, weight in self.resource_weights.items():
            check_weight(f"the weight of {name}", weight)
        for amounts in (self.guarantee, self.limit):
            for name, milli in amounts.items():
                check_milli(name, milli)
        if self.half_life_ms and not MIN_HALF_LIFE_MS <= self.half_life_ms <= MAX_HALF_LIFE_MS:
            raise InvalidRequest("the half-life must be between 1h and 90d, or 0 for none")
        for name, least in self.guarantee.items():
            if least > self.limit.get(name, least):
                raise InvalidRequest(
                    f"the guarantee {name}:{format_scalar(name, least)} is above "
                    f"the limit {name}:{format_scalar(name, self.limit[name])}"
                )


def parent_of(role: Role) -> Role | None:
    """Return the role directly above `role`; None at the top."""
    parent, slash, _ = role.rpartition("/")
    return Role(parent) if slash else None


def ancestors(role: Role) -> tuple[Role, ...]:
    """Return the roles above `role`, the nearest first."""
    parts = role.split("/")
    return tuple(Role("/".join(parts[:depth])) for depth in range(len(parts) - 1, 0, -1))


def is_within(role: Role, other: Role) -> bool:
    """Return whether `role` is `other` or below it."""
    return role == other or role.startswith(other + "/")


def check_weight(what: str, weight: int) -> int:
    """Return `weight`, in thousandths, if it can be one; `what` names it in the error.

    Raises InvalidRequest if it is not above 0 and at most 1,000,000 times a thousand.
    """
    if not 0 < weight <= MAX_WEIGHT:
        most = format_milli(MAX_WEIGHT)
        raise InvalidRequest(
            f"{what} must be above 0 and at most {most}, not {format_milli(weight)}"
        )
    return weight


def parse_weight(what: str, text: str) -> int:
    """Return the thousandths of the weight in `text`, such as `0.5`; `what` names it in errors.

    Raises InvalidRequest if it is not a number above 0 and at most 1,000,000, in thousandths.
    """
    try:
        weight = parse_scalar(what, text)
    except InvalidRequest:
        raise InvalidRequest(
            f"{what}: {text.strip()[:80]!r} is not a weight (examples: 2, 0.5; above 0)"
        ) from None
    return check_weight(what, weight)


def parse_amounts(text: str) -> dict[str, int]:
    """Read scalars such as `cpus:4;mem:8GB` as thousandths; an amount of 0 is kept.

    Raises InvalidRequest if `text` has another form; the message says where.
    """
    pairs = parse_pairs(text, "NAME:AMOUNT (example: cpus:4;mem:8GB)")
    check_names(list(pairs))
    check_spelling(pairs)
    return {name: parse_scalar(name, value) for name, value in pairs.items()}


def format_amounts(amounts: Mapping[str, int]) -> str:
    """Return `amounts` as people write them; `parse_amounts` reads it back."""
    return ";".join(f"{name}:{format_scalar(name, amounts[name])}" for name in in_order(amounts))
