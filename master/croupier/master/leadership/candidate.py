"""A running master, which leads or may come to lead, as it tells the others by etcd.

Rule: a value in etcd is untrusted. One that is too long or has another form counts as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.process.tls.renewal import Renewal

MOST_BYTES: Final = 1_500
MOST_PROBLEM: Final = 400
MOST_MS: Final = 1 << 53

_TEXT = re.compile(r"[A-Za-z0-9._+~-]{0,100}")
_PROBLEM = re.compile(rf"[ -~]{{0,{MOST_PROBLEM}}}")
_HTTP = re.compile(r"https?://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


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
    """

    address: str
    http: str = ""
    version: str = ""
    since_ms: int = 0
    master_id: str = ""
    epoch: int = 0
    term_since_ms: int = 0
    problem: str = ""

    def encode(self) -> bytes:
        """Return the value for etcd."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def read_candidate(address: str, value: bytes) -> Candidate | None:
    """Return the master that told `value` under the key of `address`; None if it is no such value.

    Fields that a newer release has added are ignored.
    """
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
