"""The masters of the cluster, as one of them knows them.

Rule: a list is made of what is in memory; nothing is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from croupier.master.leadership.candidate import Candidate
from croupier.master.leadership.leadership import Leadership
from croupier.v1 import operator_pb2 as pb


def no_others() -> Sequence[Candidate]:
    """Return the other masters of a single one."""
    return ()


class Roster:
    """This master and the others."""

    def __init__(
        self,
        leadership: Leadership,
        own: Callable[[], Candidate],
        others: Callable[[], Sequence[Candidate]] = no_others,
    ) -> None:
        """List what `own` returns, and the masters of `others`, which never block."""
        self._leadership, self._own, self._others = leadership, own, others

    def masters(self, *, only_leader: bool = False) -> list[pb.MasterView]:
        """Return the masters, the leader first; with `only_leader` this one and the leader."""
        leader, own = self._leadership.leader, self._own()
        known = {each.address: each for each in (*self._known_others(), own)}
        if leader and leader not in known:
            # It may not write its key.
            known[leader] = Candidate(leader)
        views = [
            _view(each, is_leader=each.address == leader)
            for each in known.values()
            if not only_leader or each.address in (leader, own.address)
        ]
        return sorted(views, key=lambda view: (not view.leader, view.address))

    @property
    def own_page(self) -> str:
        """The URL of this master's page."""
        return self._own().http

    def page_of(self, address: str) -> str:
        """Return the URL of the page of the master at HOST:PORT; empty if unknown."""
        return next((each.http for each in self._known_others() if each.address == address), "")

    def other_pages(self) -> list[str]:
        """Return the URLs of the pages of the other masters."""
        return [each.http for each in self._known_others() if each.http]

    def _known_others(self) -> list[Candidate]:
        """Return the other masters; a user of an encrypted page is sent to no other one."""
        others = self._others()
        if not self.own_page.startswith("https:"):
            return list(others)
        return [
            each if each.http.startswith("https:") else replace(each, http="") for each in others
        ]


def _view(one: Candidate, *, is_leader: bool) -> pb.MasterView:
    return pb.MasterView(
        master_id=one.master_id,
        address=one.address,
        leader=is_leader,
        http_address=one.http,
        version=one.version,
        since_ms=one.since_ms,
        epoch=one.epoch,
        term_since_ms=one.term_since_ms,
        problem=one.problem,
    )
