"""Finding the framework or agent that a user has named."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.ctl import views
from croupier.ctl.connection import Master
from croupier.ctl.pages import all_agents, all_frameworks
from croupier.ctl.views import View
from croupier.model.errors import Conflict, NotFound


async def framework_called(master: Master, named: str) -> View:
    """The framework of this id or, if there is just one, of this name.

    Raises:
        NotFound: if there is none.
        Conflict: if several have that name.
    """
    known = [views.framework_view(each) for each in await all_frameworks(master)]
    for each in known:
        if each["framework_id"] == named:
            return each
    return _only("framework", named, [each for each in known if each["name"] == named])


async def agent_id_of(master: Master, named: str) -> str:
    """The id of the agent of this id or, if there is just one, of this hostname.

    Raises:
        NotFound: if there is none.
        Conflict: if several have that hostname.
    """
    known = [each.agent for each in await all_agents(master)]
    if any(each.agent_id == named for each in known):
        return named
    alike = [{"agent_id": each.agent_id} for each in known if each.hostname == named]
    return str(_only("agent", named, alike)["agent_id"])


def _only(kind: str, named: str, found: Sequence[View]) -> View:
    if not found:
        raise NotFound(f"no {kind} {named!r}")
    if len(found) > 1:
        ids = ", ".join(each[f"{kind}_id"] for each in found)
        raise Conflict(f"several {kind}s are called {named!r}: {ids}")
    return found[0]
