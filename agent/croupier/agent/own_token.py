"""The agent's own token, in a file of its work dir that only its user can read.

Rule: the token is on disk before a master learns its hash, so that an agent that is killed while
it joins joins again with the same token. The file also names the id that the token is bound to.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.ids import AgentId, check_id
from croupier.model.token import BearerToken
from croupier.net.credentials import create_token_file, make_token, read_file

NAME: Final = "token"
_JOINED: Final = "joined"


@dataclass(frozen=True, slots=True)
class OwnToken:
    """The token of an agent.

    Attributes:
        agent_id: the id that it is bound to.
        is_joined: whether a master has accepted it.
    """

    token: BearerToken
    agent_id: AgentId
    is_joined: bool = False


class OwnTokenFile:
    """The file with the token.

    Attributes:
        path: of the file.
        current: what it holds; None if there is no file.
    """

    def __init__(self, work_dir: Path) -> None:
        """Read the file, if there is one.

        Raises:
            InvalidRequest: if it cannot be used.
        """
        self.path = work_dir / NAME
        self.current = self._read() if os.path.lexists(self.path) else None

    def bind(self, agent_id: AgentId) -> OwnToken:
        """Return the token for an id; make and save a new one if it is bound to another id.

        Raises:
            Unavailable: if it cannot be saved.
        """
        if self.current is None or self.current.agent_id != agent_id:
            self._save(OwnToken(make_token(), agent_id))
        assert self.current is not None
        return self.current

    def mark(self, *, is_joined: bool) -> None:
        """Record whether masters accept the token.

        Raises:
            Unavailable: if that cannot be saved.
        """
        if self.current is not None and self.current.is_joined != is_joined:
            self._save(replace(self.current, is_joined=is_joined))

    def _read(self) -> OwnToken:
        lines = read_file(self.path, is_private=True).decode(errors="replace").split()
        try:
            token = BearerToken.parse(lines[0] if lines else "")
            agent_id = AgentId(check_id("agent", lines[1] if len(lines) > 1 else ""))
        except InvalidRequest as error:
            raise InvalidRequest(
                f"{self.path} does not hold this agent's token ({error}); remove it, and the agent"
                " joins again with --join-token-file"
            ) from None
        return OwnToken(token, agent_id, lines[2:] == [_JOINED])

    def _save(self, own: OwnToken) -> None:
        scratch = self.path.with_name(f"{NAME}.new")
        more = f"{own.agent_id}\n{_JOINED if own.is_joined else ''}\n"
        try:
            with suppress(FileNotFoundError):
                scratch.unlink()
            create_token_file(scratch, own.token, more)
            scratch.replace(self.path)
            _sync(self.path.parent)
        except OSError as error:
            raise Unavailable(f"cannot save {self.path}: {error.strerror or error}") from error
        self.current = own


def remove_own_token(work_dir: Path) -> None:
    """Remove the token, as the records of the agent are removed.

    Raises:
        OSError: if it cannot be removed.
    """
    with suppress(FileNotFoundError):
        (work_dir / NAME).unlink()


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
