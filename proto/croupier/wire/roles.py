"""Settings of roles to and from the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from croupier.model.budget import Budget, BudgetAction, BudgetPeriod
from croupier.model.errors import InvalidRequest
from croupier.model.resources import MAX_NAMES
from croupier.model.roles import RoleSettings
from croupier.v1 import operator_pb2 as pb
from croupier.v1.resources_pb2 import NamedScalar
from croupier.wire.resources import by_name

_PREEMPTION = {pb.PREEMPTION_UNSPECIFIED: None, pb.PREEMPTION_ON: True, pb.PREEMPTION_OFF: False}
_PREEMPTION_OUT = {meaning: number for number, meaning in _PREEMPTION.items()}


def settings_to_wire(settings: RoleSettings) -> pb.RoleSettings:
    """Return the message for `settings`."""
    return pb.RoleSettings(
        weight_milli=settings.weight,
        resource_weights=_to_wire(settings.resource_weights),
        guarantee=_to_wire(settings.guarantee),
        limit=_to_wire(settings.limit),
        preemption=_PREEMPTION_OUT[settings.preemption],
        min_run_ms=settings.min_run_ms,
        half_life_ms=settings.half_life_ms,
        budget=None if settings.budget is None else _budget_to_wire(settings.budget),
    )


def settings_from_wire(wire: pb.RoleSettings) -> RoleSettings:
    """Return the settings in `wire`; raises InvalidRequest if they are illegal."""
    if wire.preemption not in _PREEMPTION:
        raise InvalidRequest(f"unknown preemption {wire.preemption}")
    settings = RoleSettings(
        weight=wire.weight_milli if wire.HasField("weight_milli") else RoleSettings().weight,
        resource_weights=_from_wire(wire.resource_weights),
        guarantee=_from_wire(wire.guarantee),
        limit=_from_wire(wire.limit),
        preemption=_PREEMPTION[wire.preemption],
        min_run_ms=wire.min_run_ms if wire.HasField("min_run_ms") else None,
        half_life_ms=wire.half_life_ms,
        budget=_budget_from_wire(wire.budget) if wire.HasField("budget") else None,
    )
    settings.check()
    return settings


def _budget_to_wire(budget: Budget) -> pb.Budget:
    return pb.Budget(
        amounts=_to_wire(budget.amounts), period=budget.period.value, action=budget.action.value
    )


def _budget_from_wire(wire: pb.Budget) -> Budget:
    try:
        period, action = BudgetPeriod(wire.period), BudgetAction(wire.action)
    except ValueError:
        raise InvalidRequest("unknown period or action of a budget") from None
    return Budget(_from_wire(wire.amounts), period, action)


def _to_wire(amounts: Mapping[str, int]) -> list[NamedScalar]:
    return [NamedScalar(name=name, milli=milli) for name, milli in amounts.items()]


def _from_wire(wire: Iterable[NamedScalar]) -> dict[str, int]:
    return by_name((scalar.name, scalar.milli) for scalar in islice(wire, MAX_NAMES + 1))
