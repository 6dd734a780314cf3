"""Routes of an HTTP server, each with what it requires of a request.

Rule: a route without a requirement does not exist, and a requirement without a guard is never met.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from aiohttp import web

from croupier.model.errors import PermissionDenied

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# Returns if a request meets a requirement, and raises a CroupierError if not.
Guard = Callable[[web.Request], Awaitable[None]]


class Requirement(Enum):
    """What a route requires of a request.

    Attributes:
        PUBLIC: nothing.
        READ_METRICS: the credential of a principal that may read metrics.
        OUTPUT_LINK: a link that a master has signed.
        API: a call that the gate of the master checks, as it checks those of gRPC.
    """

    PUBLIC = "public"
    READ_METRICS = "read-metrics"
    OUTPUT_LINK = "output-link"
    API = "api"

    @property
    def challenge(self) -> str:
        """The value of WWW-Authenticate in refusals, which names the scheme of the credential."""
        scheme = "CroupierLink" if self is Requirement.OUTPUT_LINK else "Bearer"
        return f'{scheme} realm="croupier"'


@dataclass(frozen=True, slots=True)
class Route:
    """A path and a method that may request it; GET includes HEAD."""

    path: str
    handler: Handler
    requirement: Requirement
    method: str = "GET"


async def allow_all(_: web.Request) -> None:
    """Permit every request: the guard of a requirement that is switched off."""


class Routes:
    """The routes of one server, what each path requires, and the guards of these requirements."""

    def __init__(self, guards: Mapping[Requirement, Guard]) -> None:
        self._guards = {Requirement.PUBLIC: allow_all, **guards}
        self.requirements: dict[str, Requirement] = {}

    def add_to(self, app: web.Application, *routes: Route) -> None:
        """Add routes; raises ValueError if two methods of one path require different things."""
        for route in routes:
            added = app.router.add_route(route.method, route.path, route.handler)
            assert added.resource is not None
            name = added.resource.canonical
            if self.requirements.setdefault(name, route.requirement) is not route.requirement:
                raise ValueError(f"the methods of {name} require different things")
            if route.method == "GET":
                app.router.add_route("HEAD", route.path, route.handler)

    def requirement_of(self, request: web.Request) -> Requirement | None:
        """Return what the route of a request requires; None if it was not added here."""
        resource = request.match_info.route.resource
        if resource is None:
            # There is no such route; 404 or 405 discloses nothing.
            return Requirement.PUBLIC
        return self.requirements.get(resource.canonical)

    async def check(self, request: web.Request) -> None:
        """Raise a CroupierError if a request does not meet the requirement of its route."""
        requirement = self.requirement_of(request)
        guard = None if requirement is None else self._guards.get(requirement)
        if guard is None:
            raise PermissionDenied("this route has no requirement, so it is refused")
        await guard(request)
