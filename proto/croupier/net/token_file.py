"""Files with one bearer token each, which only their owner may read.

Rule: a token file that its group or others can read is refused, and one is never overwritten.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from croupier.model.errors import InvalidRequest
from croupier.model.token import SECRET_BYTES, BearerToken
from croupier.net.credentials import read_token


def make_token() -> BearerToken:
    """Return a new token."""
    return BearerToken(secrets.token_hex(4), secrets.token_urlsafe(SECRET_BYTES))


def read_token_file(path: Path) -> BearerToken:
    """Return the token in the file.

    Raises:
        InvalidRequest: if the file cannot be read, is not private, or holds no token.
    """
    try:
        return BearerToken.parse(read_token(path))
    except InvalidRequest as error:
        text = str(error)
        raise InvalidRequest(text if str(path) in text else f"{path}: {text}") from None


def create_token_file(path: Path, token: BearerToken, rest: str = "") -> None:
    """Write a new file of mode 0600 with the token, and then `rest`; on disk when this returns.

    Raises:
        FileExistsError: if the file exists.
        OSError: if it cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(f"{token.text}\n{rest}".encode())
        file.flush()
        os.fsync(fd)
