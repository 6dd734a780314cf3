"""A digest of all decisions of a run: equal decisions give an equal digest.

It covers every effect of every event in order: messages with their sessions, records, closed
sessions and facts, but only the kind of an operator's answer. It leaves out legal commands of
tasks, but not illegal ones, such as the empty command of a slimmed task.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

from croupier.master.core.effects import (
    AccessChanged,
    Answer,
    Close,
    Effect,
    Happened,
    Save,
    Send,
)
from croupier.master.eventlog.codec import DIGESTED, as_json
from croupier.master.eventlog.names import answer_tag
from croupier.model.codec import Encode

_LENGTH = 16


class Digest:
    """The digest of a run."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, effects: Sequence[Effect]) -> str:
        """Add the decisions on one event, and return the digest."""
        encode = _encoder()
        document = [
            [effect.request, answer_tag(effect.result)]
            if isinstance(effect, Answer)
            else encode(effect)
            for effect in effects
        ]
        self._hash.update(as_json(document))
        return str(self)

    def __str__(self) -> str:
        return self._hash.hexdigest()[:_LENGTH]


@cache
def _encoder() -> Encode:
    return DIGESTED.encoder(Send | Close | Save | Happened | AccessChanged)
