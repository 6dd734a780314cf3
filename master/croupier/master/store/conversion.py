"""Records as release 0.1 wrote them, as JSON: a store and a copy of it are converted once."""

from __future__ import annotations

import json
import zlib
from typing import Final, cast

from croupier.master.core.records import Record
from croupier.master.eventlog.codec import NAMES
from croupier.master.store.rows import KINDS, Row, encode
from croupier.model.codec import Codec, Undecodable
from croupier.model.errors import InvalidRequest

# The version of that format.
JSON_VERSION: Final = 3

# The event log has the same names.
_CODEC: Final = Codec(NAMES)


def converted(kind: str, body: str | bytes) -> Row:
    """Return the row of the record that `body` holds.

    Raises:
        InvalidRequest: if it is no such record; the text quotes nothing of it.
    """
    try:
        decode = _CODEC.decoder(KINDS[kind].record)
        return encode(cast("Record", decode(json.loads(body))))
    except Undecodable as error:
        raise InvalidRequest(f"not a record of the kind {kind!r}: {error}") from None
    except (ValueError, RecursionError, KeyError):
        raise InvalidRequest(f"not a record of the kind {kind[:80]!r}") from None


def converted_commit(data: bytes) -> list[Row]:
    """Return the rows of a staged commit.

    Raises:
        zlib.error, ValueError, TypeError, InvalidRequest: if it cannot be read.
    """
    return [
        Row(kind, row_id, None) if body is None else converted(kind, body)
        for kind, row_id, body in json.loads(zlib.decompress(data))
    ]
