"""Lists of the master, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from croupier.cli.connection import Master
from croupier.model.errors import Unavailable
from croupier.v1 import operator_pb2 as pb


async def answers(master: Master, kind: str, **fields: Any) -> AsyncGenerator[Any, None]:
    """Yield every answer to a request for a list, such as `agents`.

    Raises:
        Unavailable: if the master cannot be reached, or repeats a page.
        CroupierError: if the master refuses.
    """
    method = f"List{kind.capitalize()}"
    request: Any = getattr(pb, f"{method}Request")(**fields)
    while True:
        page: Any = await master.ask(getattr(master.service, method), request)
        yield page
        if not page.next_page_token:
            return
        if page.next_page_token == request.page_token:
            raise Unavailable(f"the master at {master.address} repeats a page of its list")
        request.page_token = page.next_page_token


async def messages(master: Master, kind: str, **fields: Any) -> AsyncIterator[Sequence[Any]]:
    """Yield every page of a list, in protobuf; raises as `answers`."""
    async for page in answers(master, kind, **fields):
        yield getattr(page, kind)


async def first_answer(master: Master, kind: str, **fields: Any) -> Any:
    """Return the first answer to a request for a list; raises as `answers`."""
    async with aclosing(answers(master, kind, **fields)) as pages:
        return await anext(pages)
