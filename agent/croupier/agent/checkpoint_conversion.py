"""Records as release 0.1 wrote them, as JSON: a checkpoint is converted once, when it is opened."""

from __future__ import annotations

import json
from typing import Final, cast

from croupier.agent.core.records import Record
from croupier.model.codec import Codec

# The format of such a checkpoint.
JSON_FORMAT: Final = 1

_decode = Codec().decoder(Record)


def record_from_json(body: bytes) -> Record:
    """Return the record in a line of that format.

    Raises:
        Undecodable, ValueError, RecursionError: if it is none.
    """
    return cast("Record", _decode(json.loads(body)))
