"""One reader of the journal: what it asked for, and its position.

Rule: a reader gets only what its caller may view at that moment, and nothing after its credential
has been revoked or has expired. It gets a reset whenever events may be missing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final

from croupier.master.access.caller import Caller, CredentialKind, current_call
from croupier.master.access.rate_limits import counted
from croupier.master.core.access_records import TokenId
from croupier.master.journal.journal import JournalEntry, id_text, may_view, parse_id
from croupier.master.journal.lines import kind_of, line_of, matching_kinds
from croupier.master.services.visibility import Visibility
from croupier.model.access import LOCAL_ADMIN
from croupier.model.errors import Unauthenticated, Unavailable
from croupier.v1 import operator_pb2 as pb

if TYPE_CHECKING:
    from croupier.master.leadership.term import Term

# Most readers of one term, and of one principal.
MOST_READERS: Final = 200
MOST_OF_PRINCIPAL: Final = 40
# Events that are looked at, and that are returned, at once: all readers may have a turn one right
# after the other.
LOOKED_AT_ONCE: Final = 1_000
RETURNED_AT_ONCE: Final = 50
# Between two batches; in a burst, and while many readers wait for the same events, they spread.
PAUSE_S: Final = 0.1
BURST_PAUSE_S: Final = 0.02
SPREAD_S: Final = 0.03
# Without events a reader gets a sign of life.
HEARTBEAT_S: Final = 10.0
# Interval between checks of the credential of a reader that waits.
CHECK_S: Final = 0.5


class Readers:
    """The number of readers of a term."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of.total()

    def reading(self, caller: Caller) -> AbstractContextManager[None]:
        """Count a reader while it reads; raises Unavailable if there are too many."""
        if len(self) >= MOST_READERS:
            raise Unavailable(f"{MOST_READERS} readers watch events; the master accepts no more")
        name = caller.principal.name
        most = MOST_OF_PRINCIPAL if name else MOST_READERS
        refusal = f"{name} watches events {most} times; the master accepts no more"
        return counted(self._of, name, most, refusal)


class Watch:
    """A reader of the journal of one term."""

    def __init__(self, term: Term, caller: Caller, query: pb.WatchEventsRequest) -> None:
        """Read from where `query` says; raises InvalidRequest for a malformed id, or kind."""
        self._term, self._caller, self._query = term, caller, query
        self._kinds = matching_kinds(query.kinds)
        # Later steps may run in tasks of other calls.
        self._call = current_call()
        self._journal = journal = term.journal
        self._reset = ""
        # The number of the last event that was looked at, and of the last one of the past.
        self._at, self._past_end = 0, journal.last
        is_page = query.since and query.limit and not query.follow
        self._left = query.limit if is_page else None
        with self._timed():
            if query.since:
                self._begin_after(*parse_id(query.since))
            else:
                self._begin_in_past()

    async def batches(self) -> AsyncGenerator[pb.WatchEventsResponse, None]:
        """Yield what the reader asked for; with `follow`, until the term ends.

        The first batch comes at once. An empty one is a sign of life, or a reset. The position of
        a reader that does not take the next batch does not move. Raises as `check_credential`.
        """
        is_first = True
        while True:
            check_credential(self._term, self._caller)
            with self._timed():
                found = self._next()
            reset, self._reset = self._reset, ""
            is_over = self._left == 0 or (not self._query.follow and self._at >= self._past_end)
            if found or reset or is_over or is_first:
                yield self._response(found, reset)
            is_first = False
            if is_over:
                return
            if self._at >= self._journal.last:
                if await self._wait():
                    yield self._response([])
            else:
                # The rest of the past, or of a burst.
                await asyncio.sleep(0 if self._at < self._past_end else BURST_PAUSE_S)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Charge the call for the time in which it reads events, as for other reads."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._call.read_s += time.perf_counter() - begun

    async def _wait(self) -> bool:
        """Wait for events; return whether it is time for a keepalive."""
        begun = self._term.clock.now()
        while self._journal.last <= self._at:
            await self._journal.wait(self._at, CHECK_S)
            check_credential(self._term, self._caller)
            if self._term.clock.now() - begun >= HEARTBEAT_S:
                return True
        rest_s = begun + PAUSE_S - self._term.clock.now()
        await asyncio.sleep(max(0.0, rest_s) + random.random() * SPREAD_S)
        return False

    def _response(self, entries: list[JournalEntry], reset: str = "") -> pb.WatchEventsResponse:
        epoch = self._journal.epoch
        events = [line_of(entry, epoch) for entry in entries]
        return pb.WatchEventsResponse(events=events, last_id=id_text(epoch, self._at), reset=reset)

    def _next(self) -> list[JournalEntry]:
        """Return the next events of those that are remembered; note why some may be missing."""
        journal, query = self._journal, self._query
        if self._at < journal.first - 1:
            self._reset = self._reset or (
                f"the reader was slower than the events: only the last {journal.kept} are"
                " remembered"
            )
            self._at = journal.first - 1
        end = journal.last if query.follow else self._past_end
        end = min(end, self._at + LOOKED_AT_ONCE)
        is_wanted = self._filter()
        found: list[JournalEntry] = []
        most = RETURNED_AT_ONCE if self._left is None else min(RETURNED_AT_ONCE, self._left)
        while self._at < end and len(found) < most:
            self._at += 1
            entry = journal.entry(self._at)
            if is_wanted(entry):
                found.append(entry)
        if self._left is not None:
            self._left -= len(found)
        return found

    def _filter(self) -> Callable[[JournalEntry], bool]:
        kinds = self._kinds
        visible = Visibility(self._term.driver.state, self._caller.principal)
        if visible.has_all:
            return lambda entry: kinds is None or kind_of(entry.what) in kinds
        return lambda entry: (
            (kinds is None or kind_of(entry.what) in kinds) and may_view(entry, visible)
        )

    def _begin_after(self, epoch: int, number: int) -> None:
        journal = self._journal
        self._at = number
        if epoch != journal.epoch:
            self._reset = "another term has begun since: events of earlier terms are forgotten"
        elif number > journal.last:
            self._reset = "there is no event of this id yet"
        elif number < journal.first - 1:
            self._reset = f"only the last {journal.kept} events are remembered"
        if self._reset:
            self._at = journal.first - 1

    def _begin_in_past(self) -> None:
        journal, query = self._journal, self._query
        first = journal.first
        if query.HasField("within_ms"):
            first = journal.first_within(query.within_ms / 1000)
        self._at = first - 1
        if not query.limit:
            return
        is_wanted, left, number = self._filter(), query.limit, journal.last
        while number >= first and left:
            left -= is_wanted(journal.entry(number))
            number -= 1
        self._at = number


def check_credential(term: Term, caller: Caller) -> None:
    """Check that a stream of the caller may continue.

    Raises:
        CroupierError: why the term has ended.
        Unauthenticated: if the caller's token or certificate was revoked.
        Unavailable: if its credential has expired; a renewed one is accepted.
    """
    if term.journal.ended is not None:
        raise term.journal.ended
    # The local administrator's token is a file of the master.
    is_stored = caller.is_token and caller.principal.name != LOCAL_ADMIN
    if is_stored and term.driver.state.tokens.get(TokenId(caller.credential_id)) is None:
        raise Unauthenticated("the token of this stream was revoked")
    is_certificate = caller.kind is CredentialKind.CERTIFICATE
    if is_certificate and caller.credential_id in term.driver.state.access.revoked:
        raise Unauthenticated("the certificate of this stream was revoked")
    if caller.is_expired(term.clock.wall_ms()):
        raise Unavailable("the credential has expired; connect again with a renewed one")
