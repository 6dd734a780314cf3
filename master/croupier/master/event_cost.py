"""Estimated cost of an event in the core, so that batches take about the same time."""

from __future__ import annotations

from croupier.master.core import calls
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    FrameworkCalled,
    Register,
    Subscribe,
)
from croupier.master.core.step import Event


def event_cost(event: Event) -> int:
    """Return the cost in units of about 20 us, at least 1."""
    match event:
        case FrameworkCalled():
            return 1 + _call_cost(event.call)
        case AgentReported(_, statuses):
            return 1 + len(statuses)
        case AgentHealth(_, _, refused):
            return 1 + 4 * len(refused)
        case Register():
            return 1 + len(event.tasks)
        case Subscribe():
            return 10 + len(event.roles) + 4 * len(event.demands)
        case _:
            return 1


def _call_cost(call: calls.Call) -> int:
    match call:
        case calls.Accept():
            return len(call.offer_ids) + 4 * len(call.tasks)
        case calls.Submit():
            return 4 * len(call.tasks)
        case calls.Withdraw():
            return 3 * len(call.task_ids)
        case calls.Decline():
            return len(call.offer_ids)
        case calls.Acknowledge():
            return len(call.updates)
        case calls.Reconcile():
            # A call without ids asks for all tasks of the framework.
            return len(call.task_ids) // 2 or 100
        case calls.UpdateDemand():
            return 4 * len(call.demands)
        case calls.Malformed():
            return len(call.task_ids) // 4
        case _:
            return 0
