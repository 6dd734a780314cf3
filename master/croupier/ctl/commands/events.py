"""`croupier events`: events of the cluster, also over a failover.

Rule: the command says when events may be missing, and only then.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Refused, connected
from croupier.cli.flags import LOCAL, MasterFlag, Target
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
    asyncio.run(EventReader(master, EventOptions(follow, since, kind, limit, as_json)).run())


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The flags of `croupier events`.

    Attributes:
        since: a duration, or the id of an event; empty: all that the master remembers.
        limit: most events of the past; 0: all.
    """

    follow: bool = False
    since: str = ""
    kinds: tuple[str, ...] = ()
    limit: int = 0
    as_json: bool = False


class EventReader:
    """Prints the events of a cluster, whichever master leads."""

    def __init__(self, target: Target, options: EventOptions) -> None:
        """Read the events that `options` select.

        Raises:
            InvalidRequest: if `since` is neither a duration nor an id.
        """
        self._target, self._options = target, options
        self._request = first_request(options)
        self._has_begun = self._is_connected = False

    async def run(self) -> None:
        """Print events; connect again whenever the master is lost.

        Raises:
            CroupierError: if no master can be reached at first, or the master refuses.
        """
        backoff = Backoff(RETRY_S, RETRY_CAP_S, random.Random())
        while True:
            try:
                await self._read(backoff)
            except Refused as error:
                # Only values of the flags can be malformed.
                raise InvalidRequest(str(error)) from None
            except Unavailable as error:
                if not self._options.follow or not self._has_begun:
                    raise
                if self._is_connected:
                    _note(f"the connection to the master was lost ({error}); trying again")
                self._is_connected = False
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _read(self, backoff: Backoff) -> None:
        async with connected(self._target) as master:
            answers = master.watch(master.service.WatchEvents, self._request)
            async with aclosing(answers):
                async for answer in answers:
                    if self._has_begun and not self._is_connected:
                        _note(f"connected to {master.address}")
                    self._has_begun = self._is_connected = True
                    backoff.reset()
                    self._print(answer)
                    self._continue_after(answer.last_id)

    def _print(self, answer: pb.WatchEventsResponse) -> None:
        if self._options.as_json:
            if answer.reset:
                print(json.dumps({"reset": answer.reset, "last_id": answer.last_id}))
            for event in answer.events:
                print(json.dumps(as_object(event)))
            sys.stdout.flush()
            return
        if answer.reset:
            _note(f"events may be missing here: {answer.reset}")
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        events = [as_object(each) for each in answer.events]
        lines = [each for event in events for each in event_lines(event, width)]
        if lines:
            print_lines(*lines)

    def _continue_after(self, last_id: str) -> None:
        """Ask for what comes after `last_id` the next time."""
        options = self._options
        self._request = pb.WatchEventsRequest(
            since=last_id, follow=options.follow, kinds=options.kinds
        )


def first_request(options: EventOptions) -> pb.WatchEventsRequest:
    """Return the request for the events that `options` name.

    Raises:
        InvalidRequest: if `since` is neither a duration nor an id.
    """
    request = pb.WatchEventsRequest(
        follow=options.follow, kinds=options.kinds, limit=min(options.limit, 2**32 - 1)
    )
    if _ID.fullmatch(options.since):
        request.since = options.since
    elif options.since:
        try:
            request.within_ms = round(parse_duration(options.since) * 1000)
        except InvalidRequest:
            raise InvalidRequest(
                f"--since {options.since[:80]!r} is neither a time such as 10m nor the id of an"
                " event such as 3-1042"
            ) from None
    return request


def _note(text: str) -> None:
    print_lines(text, file=sys.stderr)
