"""Credentials of honest peers and of attackers at a master with authentication.

Attackers come without a credential, with one that is made up, and with true ones of several
principals, up to an administrator.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.model.token import BearerToken
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity, create_token_file, make_token, read_token_file
from croupier.net.transport import make_channel
from croupier.v1 import access_pb2, agent_pb2
from croupier.v1.access_pb2_grpc import AccessServiceStub
from croupier.v1.agent_pb2_grpc import AgentServiceStub

ADMIN: Final = "admin"
HONEST_AGENT: Final = "honest-agent"
FUZZED_AGENT: Final = "fuzz-agent"
# Principals with tokens of their own, by the name of the file.
_CLIENTS: Final = {"honest": "client/honest", "fuzz": "client/fuzz", "viewer": "client/viewer"}
_AGENTS: Final = (HONEST_AGENT, FUZZED_AGENT)
_RULES: Final = (
    ("honest-role", "client/honest", ("register", "view"), "role:honest"),
    ("fuzz-roles", "client/fuzz", ("register", "view", "kill"), "role:fuzz"),
    ("users", "client/honest", ("run-as",), "user:*"),
    ("fuzz-users", "client/fuzz", ("run-as",), "user:*"),
)
_DEADLINE_S: Final = 10.0
PLAIN: Final = ClientSecurity()

# What attackers present, by the name that reports show; None is no credential at all.
Attackers = dict[str, ClientSecurity | None]


def file_of(folder: Path, name: str) -> Path:
    """Return the file with the token of a party."""
    return folder / f"{name}.token"


def attackers(folder: Path) -> Attackers:
    """Return the credentials of attackers."""
    made_up = ClientSecurity(token=make_token().text)
    owned = ("fuzz", "viewer", FUZZED_AGENT, ADMIN)
    true = {f" as {name}": security_of(folder, name) for name in owned}
    return {"": None, " as nobody": made_up, **true}


async def admit(master: Address, folder: Path, tls: ClientSecurity = PLAIN) -> None:
    """Create the rules and tokens of all parties; the master has made the file of the admin."""
    async with make_channel(master, security_of(folder, ADMIN, tls)) as channel:
        access = AccessServiceStub(channel)
        changes = [
            access_pb2.PolicyChange(
                set_rule=access_pb2.Rule(name=name, subject=subject, actions=actions, object=item)
            )
            for name, subject, actions, item in _RULES
        ]
        member = access_pb2.Membership(group="viewer", member="client/viewer")
        changes.append(access_pb2.PolicyChange(add_member=member))
        await access.UpdatePolicy(
            access_pb2.UpdatePolicyRequest(changes=changes), timeout=_DEADLINE_S
        )
        for name, principal in _CLIENTS.items():
            token = access_pb2.Token(kind=access_pb2.TOKEN_KIND_CLIENT, principal=principal)
            await _create(access, token, file_of(folder, name))
        join = access_pb2.Token(kind=access_pb2.TOKEN_KIND_JOIN)
        await _create(access, join, file_of(folder, "join"))
    async with make_channel(master, security_of(folder, "join", tls)) as channel:
        for agent_id in _AGENTS:
            made = make_token()
            create_token_file(file_of(folder, agent_id), made)
            request = agent_pb2.JoinRequest(
                agent_id=agent_id, token_id=made.token_id, token_hash=made.hash
            )
            await AgentServiceStub(channel).Join(request, timeout=_DEADLINE_S)


def security_of(folder: Path, name: str, tls: ClientSecurity = PLAIN) -> ClientSecurity:
    """Return the credentials of a party: its token, over the connection that `tls` describes."""
    return replace(tls, token=read_token_file(file_of(folder, name)).text)


async def _create(access: AccessServiceStub, token: access_pb2.Token, path: Path) -> None:
    made: BearerToken = make_token()
    token.token_id = made.token_id
    await access.CreateToken(
        access_pb2.CreateTokenRequest(token=token, token_hash=made.hash), timeout=_DEADLINE_S
    )
    create_token_file(path, made)
