"""The credential of an agent: its certificate, or a token of its own.

Rule: a certificate names the agent's id, which then never changes. Without such a certificate, the
agent makes a token, binds it to the id that it has chosen, and has a master accept it: it joins.
The token is on disk before a master learns its hash, so that an agent that is killed while it joins
joins again with the same token.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from croupier.agent.core.state import NO_AGENT_ID
from croupier.model.attributes import Attributes
from croupier.model.errors import InvalidRequest, Unauthenticated, Unavailable
from croupier.model.ids import AgentId, check_id
from croupier.model.principal import PrincipalKind
from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.certificate import Certificate, read_certificates
from croupier.net.credentials import ClientSecurity, create_token_file, make_token, read_file
from croupier.net.server_tls import ServerTls
from croupier.net.transport import make_channel
from croupier.net.unary import call_master
from croupier.process.durable_files import sync_directory
from croupier.process.logging import get_logger
from croupier.v1 import agent_pb2 as pb
from croupier.v1.agent_pb2_grpc import AgentServiceStub
from croupier.wire.resources import attributes_to_wire

if TYPE_CHECKING:  # cyclopts
    from croupier.agent.config import AgentConfig

NAME: Final = "token"
_JOINED: Final = "joined"
JOIN_S: Final = 10.0
_log = get_logger("croupier.agent")


@dataclass(frozen=True, slots=True)
class OwnToken:
    """The token of an agent, the id that it is bound to, and whether a master has accepted it."""

    token: BearerToken
    agent_id: AgentId
    is_joined: bool = False


class OwnTokenFile:
    """The file with the token; `current` is what it holds, None if there is no file."""

    def __init__(self, work_dir: Path) -> None:
        """Read the file, if there is one. Raises InvalidRequest if it cannot be used."""
        self.path = work_dir / NAME
        self.current = self._read() if os.path.lexists(self.path) else None

    def bind(self, agent_id: AgentId) -> OwnToken:
        """Return the token for an id; make and save a new one if it is bound to another id.

        Raises Unavailable if it cannot be saved.
        """
        if self.current is None or self.current.agent_id != agent_id:
            self._save(OwnToken(make_token(), agent_id))
        assert self.current is not None
        return self.current

    def mark(self, *, is_joined: bool) -> None:
        """Record whether masters accept the token; raises Unavailable if that cannot be saved."""
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
            scratch.unlink(missing_ok=True)
            create_token_file(scratch, own.token, more)
            scratch.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise Unavailable(f"cannot save {self.path}: {error.strerror or error}") from error
        self.current = own


def remove_own_token(work_dir: Path) -> None:
    """Remove the token, as the records of the agent are removed.

    Raises OSError if it cannot be removed.
    """
    (work_dir / NAME).unlink(missing_ok=True)


class AgentCredential:
    """The credential of this agent; `certified_id` is empty if no certificate names it."""

    def __init__(self, config: AgentConfig, work_dir: Path) -> None:
        """Read the certificate and the token.

        Raises InvalidRequest if one of them cannot be used.
        """
        self._tls, self._join_token_file = config.tls.client(), config.join_token_file
        self._attributes: Attributes = config.attributes
        self._tls.check()
        self.certified_id = NO_AGENT_ID
        if self._tls.cert is not None:
            self.certified_id = agent_id_in(read_certificates(self._tls.cert)[0], self._tls.cert)
        if self.certified_id and self._join_token_file is not None:
            raise InvalidRequest(
                f"the certificate {self._tls.cert} names agent {self.certified_id} already; leave"
                " out --join-token-file"
            )
        self._own = OwnTokenFile(work_dir)

    @property
    def has_any(self) -> bool:
        """Whether the agent has a credential, or may get one."""
        return bool(self.certified_id) or self._has_token

    @property
    def given_id(self) -> AgentId:
        """The id in the certificate, else the id of the token; empty if there is neither."""
        if self.certified_id or self._own.current is None:
            return self.certified_id
        return self._own.current.agent_id

    @property
    def security(self) -> ClientSecurity:
        """The credentials of streams to masters."""
        if self.certified_id or not self._has_token:
            return self._tls
        return replace(self._tls, token_file=self._own.path)

    async def prepare(self, address: Address, agent_id: AgentId) -> None:
        """Join through the master at `address`, unless the agent needs no token, or has joined.

        Joining again with the same token changes nothing.

        Raises:
            Unauthenticated: if the join token is not valid, or there is none.
            CroupierError: if the master refuses.
        """
        if self.certified_id or not self._has_token:
            return
        # The disk may be slow.
        own = await asyncio.to_thread(self._own.bind, agent_id)
        if own.is_joined:
            return
        if self._join_token_file is None:
            raise Unauthenticated(
                "this agent needs another token: no master has accepted the one that it has; give"
                " --join-token-file"
            )
        request = pb.JoinRequest(
            agent_id=agent_id,
            token_id=own.token.token_id,
            token_hash=own.token.hash,
            attributes=attributes_to_wire(self._attributes),
        )
        security = replace(self._tls, token_file=self._join_token_file)
        async with make_channel(address, security) as channel:
            try:
                join = AgentServiceStub(channel).Join
                await call_master(join, request, address, JOIN_S, security)
            except Unavailable:
                # A follower names the leader to the stream. Masters without authentication take
                # agents without a token.
                return
        await asyncio.to_thread(self._own.mark, is_joined=True)
        _log.info("joined", agent_id=agent_id, master=str(address), token_id=own.token.token_id)

    async def rejoin(self) -> None:
        """Join again before the next stream, if that is possible: the token was rejected."""
        if self._join_token_file is not None:
            await asyncio.to_thread(self._own.mark, is_joined=False)

    def check_renewed(self, tls: ServerTls) -> None:
        """Check that a renewed certificate names the same agent.

        Raises InvalidRequest if it does not.
        """
        if not self.certified_id:
            return
        found = agent_id_in(tls.certificate, tls.files.cert)
        if found != self.certified_id:
            raise InvalidRequest(
                f"{tls.files.cert} is now the certificate of agent {found or '(none)'}, and this is"
                f" agent {self.certified_id}; restart the agent to change its id"
            )

    @property
    def _has_token(self) -> bool:
        return self._join_token_file is not None or self._own.current is not None


def agent_id_in(certificate: Certificate, source: Path) -> AgentId:
    """Return the id of the agent that a certificate names; empty if it names no principal.

    Raises InvalidRequest if it is the certificate of another kind of principal.
    """
    if not certificate.identity:
        return NO_AGENT_ID
    kind, _, name = certificate.identity.partition("/")
    if kind != PrincipalKind.AGENT.value:
        raise InvalidRequest(
            f"{source} is the certificate of {certificate.identity}, not of an agent; make one by"
            " croupier cert agent"
        )
    return AgentId(check_id("agent", name))
