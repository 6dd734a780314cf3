"""The masters of the cluster, as they tell each other by etcd, and as one of them knows them.

Rule: a list is made of what is in memory; nothing is asked for it. A value in etcd is untrusted.
One that is too long or has another form counts as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from croupier.master.leadership.leadership import Leadership
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.process.tls.renewal import Renewal
from croupier.v1 import operator_pb2 as pb

MOST_BYTES: Final = 1_500
MOST_PROBLEM: Final = 400
MOST_MS: Final = 1 << 53

_TEXT = re.compile(r"[A-Za-z0-9._+~-]{0,100}")
_PROBLEM = re.compile(rf"[ -~]{{0,{MOST_PROBLEM}}}")
_HTTP = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")

_MESOS = re.compile(_HTTP.pattern.partition("//")[2])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running master.

    Attributes:
        address: HOST:PORT of its gRPC.
        http: the URL of its page and HTTP API.
        since_ms: when it started, in milliseconds since the epoch by its own clock.
        master_id: of its latest term; empty if it has not led since it started.
        epoch: of its latest term; 0 for none.
        term_since_ms: when its latest term began; 0 for none.
        problem: what an operator should mend at this master; empty if nothing is known.
        mesos: HOST:PORT of its gateway for frameworks of Mesos; empty if it has none.
    """

    address: str
    http: str = ""
    version: str = ""
    since_ms: int = 0
    master_id: str = ""
    epoch: int = 0
    term_since_ms: int = 0
    problem: str = ""
    mesos: str = ""

    def encode(self) -> bytes:
        """Return the value for etcd."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def read_candidate(address: str, value: bytes) -> Candidate | None:
    """Parse a master's value under the key of `address`, new fields aside; None if malformed."""
    if len(value) > MOST_BYTES:
        return None
    try:
        found = json.loads(value)
        if str(Address.parse(address)) != address or not isinstance(found, dict):
            return None
        return Candidate(
            address,
            _matching(found, "http", _HTTP),
            _matching(found, "version", _TEXT),
            _number(found, "since_ms"),
            _matching(found, "master_id", _TEXT),
            _number(found, "epoch"),
            _number(found, "term_since_ms"),
            _matching(found, "problem", _PROBLEM),
            _matching(found, "mesos", _MESOS),
        )
    except (InvalidRequest, ValueError, RecursionError):
        return None


def problem_text(renewals: Mapping[str, Renewal]) -> str:
    """Return why changed certificate files are not in use, as `Candidate.problem`."""
    flags = {"own": "--tls-cert", "etcd": "--etcd-cert"}
    found = "; ".join(
        f"changed files of {flags[name]} are not in use: {renewal.problem}"
        for name, renewal in renewals.items()
        if renewal.problem
    )
    # Quotes and backslashes take two bytes in JSON.
    return re.sub(r"[^ -~]", "?", re.sub(r"[\"\\]", "'", found))[:MOST_PROBLEM]


def is_page_url(text: str) -> bool:
    """Return whether `text` is http://HOST:PORT or https://HOST:PORT."""
    return _HTTP.fullmatch(text) is not None


def _matching(found: Mapping[str, Any], name: str, form: re.Pattern[str]) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or not (value == "" or form.fullmatch(value)):
        raise ValueError(name)
    return value


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int or not 0 <= value < MOST_MS:
        raise ValueError(name)
    return value


class Roster:
    """This master and the others."""

    def __init__(
        self,
        leadership: Leadership,
        own: Callable[[], Candidate],
        others: Callable[[], Sequence[Candidate]] = tuple,
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

    def leader_mesos(self) -> str:
        """Return HOST:PORT of the leader's gateway for frameworks of Mesos; empty if unknown."""
        leader = self._leadership.leader
        return next((each.mesos for each in self._others() if each.address == leader), "")

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
