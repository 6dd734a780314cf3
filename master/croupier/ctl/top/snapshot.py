"""The state that `croupier top` reads from the master.

Rule: bounded in clusters of any size: one page of each list, and of tasks only the failed ones of
the overview, which all callers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.api.objects import as_object
from croupier.cli.connection import ALL_AGENTS, EVERY_ROLE, TOTALS, Master, first_answer, may_view
from croupier.cli.terminal import View
from croupier.ctl.lists import age_s, aged
from croupier.model.access import Object
from croupier.v1 import operator_pb2 as pb

# Words for agents that need a look.
TROUBLED: Final = (
    *("suspect", "disconnected", "unreachable"),
    *("draining", "drained", "deactivated", "unhealthy"),
)
MOST_AGENTS: Final = 100


@dataclass(frozen=True, slots=True)
class Page:
    """The first page of a list; `is_all` unless there are more."""

    views: Sequence[View] = ()
    is_all: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at about one moment.

    Attributes:
        now_ms: the master's time, in milliseconds since the epoch; 0: unknown.
        agents: those that need a look.
        failures: the latest failed tasks.
        hidden: what is empty here, but only because the caller may not view all of it.
    """

    master: View
    address: str = ""
    now_ms: int = 0
    roles: Page = field(default_factory=Page)
    frameworks: Page = field(default_factory=Page)
    agents: Page = field(default_factory=Page)
    failures: Page = field(default_factory=Page)
    hidden: frozenset[Object] = frozenset()


async def take_snapshot(master: Master) -> Snapshot:
    """Ask the master; raises CroupierError if it cannot be reached, or refuses."""
    answer = await master.ask(master.service.GetMaster, pb.GetMasterRequest())
    roles, _ = await _page(master, "roles")
    frameworks, now_ms = await _page(master, "frameworks")
    agents, _ = await _page(master, "agents", states=TROUBLED, page_size=MOST_AGENTS)
    overview = await master.ask(master.service.GetOverview, pb.GetOverviewRequest())
    view, address = as_object(answer), str(master.address)
    empty = {
        TOTALS: not view["total"]["milli"],
        EVERY_ROLE: not (roles.views and frameworks.views),
        ALL_AGENTS: not agents.views,
    }
    asked = [each for each, is_empty in empty.items() if is_empty]
    hidden = frozenset([each for each in asked if not await may_view(master, each)])
    failures = failures_page(overview, now_ms)
    return Snapshot(view, address, now_ms, roles, frameworks, agents, failures, hidden)


def failures_page(overview: pb.GetOverviewResponse, now_ms: int) -> Page:
    """Return the failed tasks of an overview, with the time since each ended."""
    views = map(as_object, overview.failures)
    aged = [{**view, "age_s": age_s(view["ended_ms"], now_ms)} for view in views]
    return Page(aged, overview.failed <= len(aged))


async def _page(master: Master, kind: str, **fields: Any) -> tuple[Page, int]:
    answer = await first_answer(master, kind, **fields)
    return Page(aged(answer, kind), not answer.next_page_token), getattr(answer, "now_ms", 0)
