"""The HTTP API and the page, as routes of the master's HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web
from google.protobuf.message import Message

from croupier.api.objects import as_object
from croupier.master.overview.shared import SHARED_S, Made, Shared
from croupier.master.services.checks import Checks
from croupier.master.web.answers import API_HEADERS, Body, answer, encoded
from croupier.master.web.bodies import check_sender, check_size, read_body
from croupier.master.web.calls import CALLS, Calls, Handlers, begin_calls
from croupier.master.web.errors import Failures, error_answer, is_answered, plain_error
from croupier.master.web.routes import ROUTES
from croupier.master.web.static_files import PAGE_HEADERS, StaticFiles
from croupier.master.web.table import PREFIX, ApiRoute, Asked, read_query
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, NotLeader
from croupier.process.http.routes import Guard, Handler, Requirement, Route

# Paths of every version of the API, also of those to come.
_API: Final = "/api/"
# What many pages ask for at the same time is computed once for each caller: so many answers, and
# bytes of them.
MOST_SHARED: Final = 256
MOST_SHARED_BYTES: Final = 16 * 1024 * 1024


class _RefusedError(Exception):
    """A guard has refused a request."""

    def __init__(self, error: CroupierError) -> None:
        super().__init__(str(error))
        self.error = error


class HttpApi:
    """The API and the page of one master."""

    def __init__(
        self,
        clock: Clock,
        checks: Checks,
        handlers: Handlers,
        page_of: Callable[[str], str] = lambda _: "",
        other_pages: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """Answer by `handlers`, calls of gRPC, after `checks`.

        `page_of` returns the URL of the page of the master at HOST:PORT; empty if unknown. The page
        may look whether the masters at the URLs of `other_pages` are up.
        """
        self._checks, self._handlers = checks, handlers
        self._page_of = page_of
        self._shared: Shared[Body] = Shared(clock, MOST_SHARED, SHARED_S, MOST_SHARED_BYTES)
        self._files, self._failures = StaticFiles(other_pages=other_pages), Failures()

    @property
    def guards(self) -> dict[Requirement, Guard]:
        """The guards of what its routes require."""
        return {Requirement.API: self._guard}

    def routes(self) -> tuple[Route, ...]:
        """Return all routes."""
        api = (
            Route(PREFIX + each.path, self._served(each), Requirement.API, each.method)
            for each in ROUTES
        )
        return (*self._files.routes(), *api)

    @web.middleware
    async def outer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer errors of the API in JSON, and add headers."""
        is_api = f"{request.path}/".startswith(_API)
        try:
            found = await handler(request)
        except _RefusedError as error:
            found = self._refusal(request, error.error)
        except CroupierError as error:
            found = self._refusal(request, error)
        except web.HTTPException as error:
            if not is_api:
                error.headers.update(PAGE_HEADERS)
                raise
            found = plain_error(error.status, error.reason)
            if "Allow" in error.headers:
                found.headers["Allow"] = error.headers["Allow"]
        except Exception as error:
            # An answer that has begun, or that the caller does not wait for, cannot be replaced.
            if not is_api or request.writer.output_size or isinstance(error, ConnectionError):
                raise
            found = self._failures.answer(request, error)
        if is_api and not found.prepared:
            if found.status >= 400 and isinstance(found, web.Response):
                found = _in_json(found)
            found.headers.update(API_HEADERS)
            found.headers.setdefault("Cache-Control", "no-store")
        return found

    def _refusal(self, request: web.Request, error: CroupierError) -> web.Response:
        if not is_answered(error):
            return self._failures.answer(request, error)
        leader_http, found = "", CALLS.get(None)
        if isinstance(error, NotLeader) and found is not None and not found.caller.is_stored:
            return error_answer(found.caller.redirected(error))
        if isinstance(error, NotLeader):
            leader_http = self._page_of(error.leader)
        return error_answer(error, leader_http)

    async def _guard(self, request: web.Request) -> None:
        try:
            await begin_calls(request, self._checks, self._handlers)
        except CroupierError as error:
            raise _RefusedError(error) from None

    async def _asked(self, route: ApiRoute, request: web.Request, calls: Calls) -> Asked:
        """Return the checked request. Raises CroupierError if it is refused."""
        check_size(request)
        if route.method == "POST":
            check_sender(request)
        query = read_query(route.query, request.query)
        body = {} if route.body is None else await read_body(request, route.body)
        return Asked(request, calls, dict(request.match_info), query, body, self._page_of)

    def _served(self, route: ApiRoute) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            calls = CALLS.get()
            asked = await self._asked(route, request, calls)
            if route.is_shared:

                async def make() -> Made[Body]:
                    body = await Body.of(_data(await route.handler(asked)))
                    return Made(body, size=len(body.data) + len(body.compressed or b""))

                body = await self._shared.get((calls.caller.principal, request.path_qs), make)
            else:
                found = await route.handler(asked)
                if isinstance(found, web.StreamResponse):
                    return found
                body = await Body.of(_data(found))
            calls.answered(len(body.data))
            return answer(request, body)

        return serve


def _data(found: Any) -> bytes:
    if isinstance(found, bytes):
        return found
    return encoded(as_object(found) if isinstance(found, Message) else found)


def _in_json(found: web.Response) -> web.Response:
    """Return the answer of a guard of the server itself, in JSON."""
    if found.content_type == "application/json":
        return found
    return plain_error(found.status, (found.text or found.reason).strip())
