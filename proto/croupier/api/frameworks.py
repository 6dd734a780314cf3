"""Frameworks."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.amounts import Amount, Demand, Label
from croupier.api.objects import as_object, makes
from croupier.v1 import operator_pb2 as pb


class Framework(TypedDict):
    """A framework.

    Attributes:
        share: its dominant share of the cluster, from 0 to 1.
        share_ppm: the same in millionths.
        entitlement: the share that it is due under unlimited demand.
        entitlement_ppm: the same in millionths.
        state: such as `connected`.
        suppressed: it gets no offers in any role, by its own request.
        demands: none: it wants whole offers.
        tasks: the number of its tasks that have not ended.
        running: those of them that have an agent.
        queued: those of them that wait for one.
        lined_up: those of the queued ones that are lined up at agents, behind tasks like them.
        done: the number of its tasks that have ended since this master began to lead.
        failed: those of them that failed.
        offers: the number of its outstanding offers.
        removed_in_s: time until it is removed, unless it returns; None unless it is disconnected.
        connected_since_ms: when its session began, in milliseconds since the epoch; None: it has
            none.
    """

    framework_id: str
    name: str
    roles: list[str]
    state: str
    suppressed: bool
    hostname: str
    webui_url: str
    failover_timeout_s: float
    labels: list[Label]
    demands: list[Demand]
    used: Amount
    offered: Amount
    share: float
    share_ppm: int
    entitlement: float
    entitlement_ppm: int
    suppressed_roles: list[str]
    tasks: int
    running: int
    queued: int
    lined_up: int
    done: int
    failed: int
    offers: int
    removed_in_s: float | None
    connected_since_ms: int | None


@makes(Framework)
def framework_view(framework: pb.FrameworkView) -> Framework:
    """Return one framework."""
    return as_object(Framework, framework, framework.framework)
