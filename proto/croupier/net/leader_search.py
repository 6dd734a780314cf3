"""The search for the master that leads: `Masters` for sessions, `LeaderSearch` for a few calls.

Rule: a session tries one master after another, and a search asks all at once, so that one that
hangs delays nothing. A follower that names the leader sends its client there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from croupier.model.errors import CroupierError, InvalidRequest, NotLeader, Unavailable
from croupier.net.address import Address
from croupier.net.task_scope import end

# Seconds between two questions to one follower.
AGAIN_S = 0.2
MAX_HOPS = 3


@dataclass(frozen=True, slots=True)
class LeaderAnswer:
    """A master's answer: whether it leads, or the address of the `leader` if it knows one."""

    is_leader: bool
    leader: Address | None


Ask = Callable[[Address, float], Awaitable[LeaderAnswer]]


class LeaderSearch:
    """One search of at most `timeout_s`; followers are asked again: an election takes seconds."""

    def __init__(self, ask: Ask, timeout_s: float, *, by_token: bool = False) -> None:
        """Search by `ask(address, timeout_s)`, which raises CroupierError if there is no answer.

        With `by_token` the caller has a token, so that followers may not name the leader to it.
        """
        self._ask, self._timeout_s, self._by_token = ask, timeout_s, by_token
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + timeout_s
        self._asking: dict[asyncio.Task[LeaderAnswer], Address] = {}
        self._asked: set[Address] = set()
        self._errors: dict[Address, CroupierError] = {}
        # Followers, with the leader that each names.
        self._followers: dict[Address, Address | None] = {}

    async def run(self, addresses: Sequence[Address]) -> Address:
        """Return the leader's address; raises Unavailable, or CroupierError if one refuses."""
        try:
            for address in addresses:
                self._begin(address)
            while self._asking:
                done, _ = await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    address = self._asking.pop(task)
                    if self._leads(address, task):
                        return address
        finally:
            await end(*self._asking)
        raise self._failure(addresses)

    def _begin(self, address: Address) -> None:
        is_again = address in self._asked
        left_s = self._until - self._loop.time()
        if address in self._asking.values() or (is_again and left_s < AGAIN_S):
            return
        self._asked.add(address)
        asking = self._ask_after(address, AGAIN_S if is_again else 0.0)
        self._asking[asyncio.create_task(asking)] = address

    async def _ask_after(self, address: Address, wait_s: float) -> LeaderAnswer:
        await asyncio.sleep(wait_s)
        return await self._ask(address, self._until - self._loop.time())

    def _leads(self, address: Address, task: asyncio.Task[LeaderAnswer]) -> bool:
        """Return whether the master leads; else ask it again, and the leader that it names."""
        error = task.exception()
        if isinstance(error, CroupierError):
            self._errors[address] = error
            return False
        answer = task.result()
        if not answer.is_leader:
            self._followers[address] = answer.leader
            self._begin(address)
            if answer.leader is not None:
                self._begin(answer.leader)
        return answer.is_leader

    def _failure(self, addresses: Sequence[Address]) -> CroupierError:
        # A follower cannot check a token: if any master refuses the caller, that is the reason.
        for error in self._errors.values():
            if not isinstance(error, Unavailable):
                return error
        for follower, leader in self._followers.items():
            if leader is not None and leader in self._errors:
                return Unavailable(f"{leader} leads, says {follower}, but: {self._errors[leader]}")
        if self._followers:
            return Unavailable(self._no_leader_text())
        return self._errors[addresses[0]]

    def _no_leader_text(self) -> str:
        names = ", ".join(map(str, self._followers))
        waited = f"waited {self._timeout_s:g} s"
        if self._by_token and not any(self._followers.values()):
            verb = "follows" if len(self._followers) == 1 else "follow"
            return (
                f"no master that leads was found: {names} {verb}, and a master"
                f" that follows does not tell callers with a token which one leads; {waited}; list"
                " the token ports of all masters (--master HOST:PORT,HOST:PORT,...); if all are"
                " listed, none leads right now: try again in a few seconds"
            )
        return (
            f"no master leads right now, say {names}; {waited} for one to be elected; try again in"
            " a few seconds"
        )


class Masters:
    """The known masters of one cluster, at least one, in the order in which to try them.

    A redirect never leads in a circle, and not back to a master that was just found dead.
    """

    def __init__(self, addresses: Sequence[Address], *, only_loopback: bool = False) -> None:
        """Start with the first of `addresses`; redirects lead to others, or `only_loopback`."""
        assert addresses
        self._only_loopback = only_loopback
        self._list = cycle(addresses)
        self._current: Address | None = None
        self._leader: Address | None = None
        self._dead: Address | None = None
        self._hops = 0

    def next(self) -> Address:
        """Return the master to try now: the leader that was named last, else the next listed."""
        self._current, self._leader = self._leader or next(self._list), None
        return self._current

    def served(self) -> None:
        """Record that the latest master leads."""
        self._hops, self._dead = 0, None

    def failed(self, error: CroupierError) -> bool:
        """Record the error of the latest master; return whether to try the next without a wait."""
        if not isinstance(error, NotLeader):
            self._hops, self._dead = 0, self._current
            return False
        leader = leader_address(error.leader)
        is_dead, self._dead = leader == self._dead, None
        is_followed = leader is not None and (leader.is_loopback or not self._only_loopback)
        if not is_followed or leader == self._current or is_dead or self._hops >= MAX_HOPS:
            self._hops = 0
            return False
        self._hops += 1
        self._leader = leader
        return True


def leader_address(text: str) -> Address | None:
    """Return the address that a follower names; None if it names none, or no address."""
    try:
        return Address.parse(text) if text else None
    except InvalidRequest:
        return None
