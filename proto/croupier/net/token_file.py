"""Files with one bearer token each, which only their owner may read.

Rule: a token file that its group or others can read is refused, and one is never overwritten.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.model.token import SECRET_BYTES, BearerToken

_MAX_BYTES: Final = 8 * 1024


def make_token() -> BearerToken:
    """Return a new token."""
    return BearerToken(secrets.token_hex(4), secrets.token_urlsafe(SECRET_BYTES))


def read_token_file(path: Path) -> BearerToken:
    """Return the token in the file.

    Raises:
        InvalidRequest: if the file cannot be read, is not private, or holds no token.
    """
    text = read_private_text(path)
    try:
        return BearerToken.parse(text.strip())
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from None


def read_private_text(path: Path) -> str:
    """Return the text of a file that only its owner, this user or root, can read.

    Raises:
        InvalidRequest: if it cannot be read, is not a small regular file, or another user can read
            or replace it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        problem = privacy_problem(os.fstat(fd))
        if problem:
            raise InvalidRequest(f"{path} holds a secret, but {problem}")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidRequest(f"{path} is larger than {_MAX_BYTES} bytes")
    return data.decode(errors="replace")


def privacy_problem(status: os.stat_result) -> str:
    """Return why another user could read or replace the file; empty if none can."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        return f"other users may read or write it (mode {mode:04o}); run chmod 600 on it"
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to another user (uid {status.st_uid})"
    return ""


def create_token_file(path: Path, token: BearerToken) -> None:
    """Write a new file of mode 0600 with the token; on disk when this returns.

    Raises:
        FileExistsError: if the file exists.
        OSError: if it cannot be written.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(f"{token.text}\n".encode())
        file.flush()
        os.fsync(fd)
