"""Long lists, a page at a time.

Rule: a listing takes the keys of all items, in slices, and sorts them once. Its pages look up each
key in turn. So an item that exists throughout is listed exactly once, and the cost of a page is
that of its items.

A token names its listing and the last key shown. If this master does not have the listing, it
makes a new one and continues after that key. A token is good only for the principal that got it:
the listing holds the keys of items that this principal may view, and no others.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from croupier.master.core.state import State
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.net.outbox import Sized
from croupier.v1 import operator_pb2 as pb
from croupier.v1.access_pb2 import ListTokensRequest

# Below the 4 MiB that gRPC lets a client receive by default.
PAGE_BYTES: Final = 2 * 1024 * 1024
PAGE_ITEMS: Final = 5_000
# Limits of one slice of work on a page; the driver runs between slices.
SLICE_S: Final = 0.005
SLICE_ITEMS: Final = 250
# Keys between two looks at the clock.
KEYS_AT_ONCE: Final = 100
# Among keys: an item that is not in the list. It makes the search for a few items interruptible.
NOT_LISTED: Final = ""
# About 1 ms of sorting.
SORTED_AT_ONCE: Final = 5_000
# Most listings in memory: each holds a key for every item.
MOST_LISTINGS: Final = 4
IDLE_S: Final = 60.0
MAX_TOKEN_BYTES: Final = 4_096

# Control characters, which no id has: before a number in a key they stand for its digits.
_NUMBER: Final = re.compile(r"([0-9]+)")
_FIRST_MARK: Final = 14
_MARKS: Final = dict.fromkeys(range(_FIRST_MARK, 32))

ViewT = TypeVar("ViewT", bound=Sized)
T = TypeVar("T")
ListRequest = (
    pb.ListAgentsRequest
    | pb.ListFrameworksRequest
    | pb.ListHoldsRequest
    | pb.ListOffersRequest
    | pb.ListReservationsRequest
    | pb.ListRolesRequest
    | pb.ListTasksRequest
    | ListTokensRequest
)


class Read(Protocol):
    """Reads the state of the current term; see `Leadership.read`."""

    def __call__(self, query: Callable[[State], T], /) -> Awaitable[T]:
        """Return the answer to `query`, at one moment."""


@dataclass(frozen=True, slots=True)
class Listed(Generic[ViewT]):
    """A list that operators may request, in natural order: run-2 comes before run-10.

    Attributes:
        name: identifies the list and its filter.
        keys: returns the keys of all items, in any order, and maybe twice. Items are listed by
            key. An iterator of it is advanced in slices of work: it may not iterate over what
            changes, and yields `NOT_LISTED` for each item that it skips.
        view: returns one item; None if it no longer exists, or may not be viewed any more.
        caller: the principal that it is for; no other can use its pages.
    """

    name: str
    keys: Callable[[State], Iterable[str]]
    view: Callable[[State, str], ViewT | None]
    caller: str = ""

    @property
    def title(self) -> str:
        """The list and caller for which page tokens are valid."""
        return f"{self.name} {self.caller}" if self.caller else self.name


class WrongPageToken(InvalidRequest):
    """A token that is none of the list's."""


@dataclass(slots=True)
class _Listing:
    """Sorted keys of a list at the time of its first page."""

    title: str
    keys: list[str]
    used_at: float


class Pages:
    """Makes pages, and keeps the listings in progress."""

    def __init__(self, read: Read, clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._listings: OrderedDict[str, _Listing] = OrderedDict()
        self._turns = _Turns(MOST_LISTINGS)

    def __len__(self) -> int:
        return len(self._listings)

    async def page(self, listed: Listed[ViewT], request: ListRequest) -> tuple[list[ViewT], str]:
        """Return the items of a page, and the next token or an empty one; raises CroupierError."""
        listing_id, last = _parse_token(listed.title, request.page_token)
        size = min(request.page_size or PAGE_ITEMS, PAGE_ITEMS)
        async with self._turns.of(listed.caller):
            listing = self._known(listing_id, listed.title)
            if listing is None:
                listing_id, listing = secrets.token_hex(4), await self._begin(listed)
            start = 0 if last is None else bisect_right(listing.keys, last)
            views, end = await self._fill(listed, listing.keys, start, size)
        if end == len(listing.keys):
            self._listings.pop(listing_id, None)
            return views, ""
        self._remember(listing_id, listing)
        return views, _make_token(listed.title, listing_id, listing.keys[end - 1])

    async def _begin(self, listed: Listed[ViewT]) -> _Listing:
        found: list[str] = []
        rest: Iterator[str] | None = None

        def search(state: State) -> bool:
            """Find more keys, for at most a slice of time; return whether these are all."""
            nonlocal rest
            until = self._clock.now() + SLICE_S
            if rest is None:
                listed_keys = listed.keys(state)
                if isinstance(listed_keys, list):
                    found.extend(map(natural, listed_keys))
                    return True
                rest = iter(listed_keys)
            while True:
                some = list(islice(rest, KEYS_AT_ONCE))
                found.extend(natural(key) for key in some if key)
                if len(some) < KEYS_AT_ONCE:
                    return True
                if self._clock.now() >= until:
                    return False

        while not await self._read(search):
            pass
        keys: list[str] = []
        for start in range(0, len(found), SORTED_AT_ONCE):
            keys += sorted(found[start : start + SORTED_AT_ONCE])
            await asyncio.sleep(0)
        # Python's sort merges the sorted runs.
        keys.sort()
        return _Listing(listed.title, list(dict.fromkeys(keys)), self._clock.now())

    async def _fill(
        self, listed: Listed[ViewT], keys: Sequence[str], at: int, size: int
    ) -> tuple[list[ViewT], int]:
        """Return at least one item from `at` on, if there is one, and the index of the next."""
        views: list[ViewT] = []
        size_bytes = 0

        def add_some(state: State) -> bool:
            """Add items, for at most a slice of time; return whether the page is full."""
            nonlocal at, size_bytes
            until = self._clock.now() + SLICE_S
            for key in keys[at : at + SLICE_ITEMS]:
                view = listed.view(state, key.translate(_MARKS))
                if view is not None:
                    size_bytes += view.ByteSize()
                    if views and size_bytes > PAGE_BYTES:
                        return True
                    views.append(view)
                at += 1
                if len(views) == size:
                    return True
                if self._clock.now() >= until:
                    break
            return at == len(keys)

        while not await self._read(add_some):
            pass
        return views, at

    def _known(self, listing_id: str, title: str) -> _Listing | None:
        self._forget(self._clock.now() - IDLE_S)
        found = self._listings.get(listing_id)
        return found if found is not None and found.title == title else None

    def _remember(self, listing_id: str, listing: _Listing) -> None:
        listing.used_at = self._clock.now()
        self._listings[listing_id] = listing
        self._listings.move_to_end(listing_id)
        if len(self._listings) > MOST_LISTINGS:
            self._listings.popitem(last=False)

    def _forget(self, used_before: float) -> None:
        while self._listings:
            oldest = next(iter(self._listings))
            if self._listings[oldest].used_at >= used_before:
                return
            del self._listings[oldest]


def natural(key: str) -> str:
    """Return a text that sorts `key` with its numbers by value; it adds `_MARKS` only."""
    first, slash, rest = key.partition("/")
    # Many tasks have the same framework.
    return f"{_marked_once(first)}/{_marked(rest)}" if slash else _marked(first)


def _marked(text: str) -> str:
    parts = _NUMBER.split(text)
    parts[1::2] = [chr(min(_FIRST_MARK + len(each.lstrip("0")), 31)) + each for each in parts[1::2]]
    return "".join(parts)


_marked_once = lru_cache(1024)(_marked)


class _Turns:
    """Pages that are made at the same time: a few, and one for each principal."""

    def __init__(self, most: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._of: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn of the principal; all callers without a name share no lock."""
        if not caller:
            async with self._all:
                yield
            return
        lock, waiting = self._of.get(caller, (asyncio.Lock(), 0))
        self._of[caller] = lock, waiting + 1
        try:
            async with lock, self._all:
                yield
        finally:
            lock, waiting = self._of[caller]
            self._of[caller] = lock, waiting - 1
            if waiting == 1:
                del self._of[caller]


def _make_token(name: str, listing_id: str, last: str) -> str:
    # No id or role has a line break.
    return base64.urlsafe_b64encode(f"{name}\n{listing_id}\n{last}".encode()).decode()


def _parse_token(name: str, token: str) -> tuple[str, str | None]:
    """Return the listing and the last key; None before the first page. Raises WrongPageToken."""
    if not token:
        return "", None
    try:
        if len(token) > MAX_TOKEN_BYTES:
            raise ValueError
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
        list_name, listing_id, last = text.split("\n")
        if list_name != name:
            raise ValueError
    except ValueError:
        raise WrongPageToken(
            "page_token is not one of this list: give next_page_token of the page before, as it"
            " is, in the same request"
        ) from None
    return listing_id, last
