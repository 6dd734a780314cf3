"""Bearer tokens: an id, which is no secret, and a secret that proves who the caller is.

Rule: the secret appears in no representation of a token. Only `text` and `secret` return it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final

from croupier.model.errors import InvalidRequest

SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"crp_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token in clear, as its owner holds it; the master stores only its id and hash.

    Attributes:
        token_id: 8 hexadecimal digits.
        secret: 256 random bits, in the alphabet of URLs.
    """

    token_id: str
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> BearerToken:
        """Read `crp_ID_SECRET`; raises InvalidRequest, which does not quote it, for other forms."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise InvalidRequest("malformed token: a token has the form crp_ID_SECRET")
        return cls(found[1], found[2])

    @property
    def text(self) -> str:
        """The token as it is sent and stored by its owner."""
        return f"crp_{self.token_id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        """SHA-256 of the secret, which has so many random bits that it needs no slower hash."""
        return hashlib.sha256(self.secret.encode()).digest()
