"""A digest of all decisions so far: equal decisions, equal digest.

It is over every effect of every event: what was sent to whom, in which order; what was saved,
closed and reported. Of an operator's answer only its kind. What tasks are to run is left out; an
illegal command, such as the empty one of a slimmed task, is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

from croupier.master.core.effects import Answer, Close, Effect, Happened, Save, Send
from croupier.master.eventlog.codec import DIGESTED, as_json
from croupier.master.eventlog.tags import answer_tag
from croupier.model.codec import Encode

_LENGTH = 16


class Digest:
    """The digest of a run."""

    def __init__(self) -> None:
        """Nothing was decided yet."""
        self._hash = sha256()

    def add(self, effects: Sequence[Effect]) -> str:
        """Take in what was decided on one event; the digest with it."""
        encode = _encoder()
        told = [
            [effect.request, answer_tag(effect.result)]
            if isinstance(effect, Answer)
            else encode(effect)
            for effect in effects
        ]
        self._hash.update(as_json(told))
        return str(self)

    def __str__(self) -> str:
        return self._hash.hexdigest()[:_LENGTH]


@cache
def _encoder() -> Encode:
    return DIGESTED.encoder(Send | Close | Save | Happened)
