"""A master with authentication on loopback, and clients with tokens of any principal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenId, TokenKind, TokenRecord
from croupier.model.access import Action, Rule
from croupier.model.principal import PrincipalName
from croupier.model.token import BearerToken
from croupier.net.credentials import ClientSecurity, make_token, read_token_file
from tests.harness.masters import running_master


class SecuredMaster:
    """A running master with authentication, whose state tests change directly."""

    def __init__(self, master: MasterDaemon, admin: BearerToken) -> None:
        self.master, self.admin = master, admin

    @property
    def state(self) -> Any:
        return self.master.driver.state

    def token_for(
        self, principal: str, kind: TokenKind = TokenKind.CLIENT, **more: Any
    ) -> BearerToken:
        """Return a token of a principal, such as `client/alice`."""
        token = make_token()
        record = TokenRecord(
            TokenId(token.token_id), kind, PrincipalName(principal), token.hash.hex(), 0, **more
        )
        self.state.tokens.put(record)
        return token

    def join(self, group: str, principal: str) -> None:
        """Make a principal a member of a group."""
        access = self.state.access
        groups = {**access.groups, group: access.groups.get(group, frozenset()) | {principal}}
        self.state.set_access(replace(access, groups=groups))

    def allow(self, subject: str, actions: Iterable[Action], target: str) -> None:
        """Add a rule."""
        access = self.state.access
        rule = Rule(f"r{len(access.rules)}", subject, tuple(actions), target)
        self.state.set_access(replace(access, rules={**access.rules, rule.name: rule}))


def bearing(token: BearerToken | str) -> ClientSecurity:
    """Return the credentials of a client with a token."""
    return ClientSecurity(token=token if isinstance(token, str) else token.text)


@asynccontextmanager
async def secured_master(directory: Path, **options: Any) -> AsyncIterator[SecuredMaster]:
    """Run a master with authentication on free ports."""
    path = directory / "admin.token"
    async with running_master(auth=True, admin_token_file=path, **options) as master:
        yield SecuredMaster(master, read_token_file(path))
