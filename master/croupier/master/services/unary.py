"""Handlers of unary calls: a CroupierError ends the call with its status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

from croupier.master.access.caller import current_caller
from croupier.master.services.redirection import as_redirected
from croupier.master.services.stream import Context
from croupier.model.errors import CroupierError, Unavailable, shortened
from croupier.net.errors import nearest_status

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Handler = Callable[[Any, RequestT, Context], Awaitable[ResponseT]]


def unary(handler: Handler[RequestT, ResponseT]) -> Handler[RequestT, ResponseT]:
    """Abort the call with the status of a CroupierError that `handler` raises."""

    @wraps(handler)
    async def handle(self: Any, request: RequestT, context: Context) -> ResponseT:
        try:
            return await handler(self, request, context)
        except CroupierError as error:
            if isinstance(error, Unavailable):
                error = as_redirected(error, current_caller())
            # The text may quote all of the request.
            text = str(shortened(error))
            return await context.abort(nearest_status(error), text)

    return handle
