"""Frameworks."""

from __future__ import annotations

from croupier.api.amounts import (
    Amount,
    Demand,
    Label,
    Shares,
    amount_view,
    demand_view,
    labels_view,
    shares_view,
)
from croupier.api.times import milliseconds, seconds
from croupier.v1 import operator_pb2 as pb


class Framework(Shares):
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
    suppressed_roles: list[str]
    tasks: int
    running: int
    queued: int
    done: int
    failed: int
    offers: int
    removed_in_s: float | None
    connected_since_ms: int | None


def framework_view(framework: pb.FrameworkView) -> Framework:
    """Return one framework."""
    info = framework.framework
    return {
        "framework_id": info.framework_id,
        "name": info.name,
        "roles": list(info.roles),
        "state": framework.state,
        "suppressed": framework.suppressed,
        "hostname": info.hostname,
        "webui_url": info.webui_url,
        "failover_timeout_s": info.failover_timeout_ms / 1000,
        "labels": labels_view(info.labels),
        "demands": [demand_view(demand) for demand in framework.demands],
        "used": amount_view(framework.used),
        "offered": amount_view(framework.offered),
        **shares_view(framework),
        "suppressed_roles": list(framework.suppressed_roles),
        "tasks": framework.tasks,
        "running": framework.running,
        "queued": framework.queued,
        "done": framework.done,
        "failed": framework.failed,
        "offers": framework.offers,
        "removed_in_s": seconds(framework, "removed_in_ms"),
        "connected_since_ms": milliseconds(framework, "connected_since_ms"),
    }
