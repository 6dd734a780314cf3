"""The table of the HTTP API: each route with its handler, its parameters and its answer.

To add routes: write a module with `ROUTES`, and name it in `routes.py`. OpenAPI's document, the
checks of parameters and bodies, and the errors follow from the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from croupier.master.web.calls import Calls
from croupier.master.web.parameters import Parameter

PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One request, checked.

    Attributes:
        http: the request itself, for answers that are no JSON.
        calls: makes calls of gRPC's services for its caller.
        path: the variable parts of the path.
        query: the values of all parameters of the route.
        body: the JSON object of a POST.
        page_of: returns the URL of the page of the master at HOST:PORT; empty if unknown.
    """

    http: web.Request
    calls: Calls
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    page_of: Callable[[str], str]

    async def ask(self, method: str, request: Any) -> Any:
        """Call a method of gRPC's services, such as `ListTasks`; raises as `Calls.ask`."""
        return await self.calls.ask(method, request)


# Returns a message or a JSON value, encoded JSON, or an answer of another kind.
ApiHandler = Callable[[Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One operation of the API.

    Attributes:
        path: below `/api/v1`; `{name}` is a part, and `{name:.+}` any number of them.
        handler: answers a request.
        summary: what it does, for OpenAPI.
        answer: the message whose JSON object it returns, or a schema; None if that is no JSON.
        query: its parameters.
        method: GET or POST.
        body: the message whose JSON object a POST's body is.
        shared_s: for how long an answer serves equal requests of the same caller; 0: not.
        content_type: of the answer.
    """

    path: str
    handler: ApiHandler
    summary: str
    answer: Any
    query: tuple[Parameter, ...] = ()
    method: str = "GET"
    body: Any = None
    shared_s: float = 0.0
    content_type: str = "application/json"
