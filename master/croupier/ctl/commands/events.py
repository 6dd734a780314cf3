"""`croupier events`: events of the cluster, also over a failover.

Rule: the command says when events may be missing, and only then.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Refused, connected
from croupier.cli.flags import LOCAL, MasterFlag, Target
from croupier.cli.table import terminal_width
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.views.described import event_lines
from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.backoff import Backoff
from croupier.v1 import operator_pb2 as pb

# Pauses before it connects again.
RETRY_S: Final = 0.2
RETRY_CAP_S: Final = 5.0
_ID: Final = re.compile(r"[0-9]+-[0-9]+")


@app.command
def events(
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    since: str = "",
    kind: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    limit: Annotated[int, Parameter(name=("--limit", "-n"))] = 0,
    master: MasterFlag = LOCAL,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Show what happened in the cluster: agents, frameworks, tasks, roles and masters.

    The leading master remembers the last 10,000 events of its term.

    Args:
        follow: Keep printing new events, also from the next master after a failover.
        since: Print only the events of this time until now, such as 10m, or those after the event
            of this id, such as 3-1042.
        kind: Print only events of this kind, such as task-failed, or whose kind begins with this
            word, such as agent; `problem` selects failures and problems. May be repeated.
        limit: Maximum number of past events: the latest ones, or with an id the first after it. 0
            is no limit.
        as_json: Print each event as a JSON object on a line of its own.
    """
    if limit < 0:
        raise InvalidRequest("--limit must not be negative")
    request = first_request(since, kind, limit, follow=follow)
    asyncio.run(print_events(master, request, as_json=as_json))


async def print_events(
    target: Target, request: pb.WatchEventsRequest, *, as_json: bool = False
) -> None:
    """Print events; with `follow`, reconnect to lost masters. Raises CroupierError at first."""
    backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
    has_begun = is_connected = False
    while True:
        try:
            async with connected(target) as master:
                answers = master.answers(master.service.WatchEvents(request))
                async with aclosing(answers):
                    async for answer in answers:
                        if has_begun and not is_connected:
                            _note(f"connected to {master.address}")
                        has_begun = is_connected = True
                        backoff.reset()
                        _print(answer, as_json=as_json)
                        # The next master is asked for what comes after this.
                        request = pb.WatchEventsRequest(
                            since=answer.last_id, follow=request.follow, kinds=request.kinds
                        )
        except Refused as error:
            # Only values of the flags can be malformed.
            raise InvalidRequest(str(error)) from None
        except Unavailable as error:
            if not request.follow or not has_begun:
                raise
            if is_connected:
                _note(f"the connection to the master was lost ({error}); trying again")
            is_connected = False
            await asyncio.sleep(backoff.next_s())
        else:
            return


def _print(answer: pb.WatchEventsResponse, *, as_json: bool) -> None:
    if as_json:
        if answer.reset:
            print(json.dumps({"reset": answer.reset, "last_id": answer.last_id}))
        for event in answer.events:
            print(json.dumps(as_object(event)))
        sys.stdout.flush()
        return
    if answer.reset:
        _note(f"events may be missing here: {answer.reset}")
    width = terminal_width()
    lines = [line for event in answer.events for line in event_lines(as_object(event), width)]
    if lines:
        print_lines(*lines)


def first_request(
    since: str = "", kinds: Sequence[str] = (), limit: int = 0, *, follow: bool = False
) -> pb.WatchEventsRequest:
    """Return the request that the flags select; raises InvalidRequest if `since` is malformed."""
    request = pb.WatchEventsRequest(follow=follow, kinds=kinds, limit=min(limit, 2**32 - 1))
    if _ID.fullmatch(since):
        request.since = since
    elif since:
        try:
            request.within_ms = round(parse_duration(since) * 1000)
        except InvalidRequest:
            raise InvalidRequest(
                f"--since {since[:80]!r} is neither a time such as 10m nor the id of an"
                " event such as 3-1042"
            ) from None
    return request


def _note(text: str) -> None:
    print_lines(text, file=sys.stderr)
