"""Making, listing and revoking tokens.

Rule: a token is made here. Only its id and the hash of its secret are sent, and it is printed once,
or written to a file that did not exist. It is never part of a log line or an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.api.objects import as_object
from croupier.cli.amounts import View
from croupier.cli.connection import Master, run
from croupier.cli.flags import Change, Target
from croupier.cli.terminal import print_lines
from croupier.ctl.operation import print_objects, print_result
from croupier.ctl.views.token import TOKENS, scope_text
from croupier.model.durations import parse_duration
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.principal import PrincipalKind, principal_name
from croupier.model.resources import Resources
from croupier.net.credentials import create_token_file, make_token
from croupier.v1 import access_pb2 as pb
from croupier.wire.resources import resources_to_wire

NEVER = "never"


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Flags of commands that make a token.

    Attributes:
        expires: a duration from now, or `never`.
        output: a file for the token; None prints it.
    """

    expires: str
    output: Path | None = None
    description: str = ""
    as_json: bool = False


def client_token(name: str, description: str) -> pb.Token:
    """Return a token of the principal `client/NAME`, without an id.

    Raises:
        InvalidRequest: if the name is malformed.
    """
    principal = principal_name(PrincipalKind.CLIENT, name)
    return pb.Token(kind=pb.TOKEN_KIND_CLIENT, principal=principal, description=description)


def join_token(
    uses: int, attributes: Sequence[str], description: str, max_resources: str = ""
) -> pb.Token:
    """Return a token by which agents join, without an id; `uses` 0 is any number.

    Raises:
        InvalidRequest: if an argument is malformed.
    """
    if uses < 0:
        raise InvalidRequest("--uses is 1 or more, or 0 for any number")
    for each in attributes:
        if not all(part.strip() for part in each.partition(":")):
            raise InvalidRequest(f"--attribute {each[:80]!r} is not NAME:VALUE (example: rack:r1)")
    token = pb.Token(kind=pb.TOKEN_KIND_JOIN, attributes=attributes, description=description)
    if uses:
        token.uses_left = uses
    if max_resources:
        token.max_resources.CopyFrom(resources_to_wire(Resources.parse(max_resources)))
    return token


def create_token(
    target: Target, token: pb.Token, groups: Sequence[str], options: TokenOptions
) -> None:
    """Make a token, store its hash, and print it or write it to a file.

    Raises:
        InvalidRequest: if an argument is malformed.
        Conflict: if the file exists.
        CroupierError: if the master refuses.
    """
    lifetime_s = None if options.expires == NEVER else parse_duration(options.expires)
    made = make_token()
    if options.output is not None:
        try:
            create_token_file(options.output, made)
        except FileExistsError:
            raise Conflict(f"{options.output} exists; choose another file") from None
        except OSError as error:
            raise InvalidRequest(f"cannot write {options.output}: {error.strerror}") from None

    async def create(master: Master) -> pb.Token:
        # By the master's clock, because it decides when the token expires.
        now = await master.ask(master.access.WhoAmI, pb.WhoAmIRequest())
        changes = [
            pb.PolicyChange(add_member=pb.Membership(group=group, member=token.principal))
            for group in groups
        ]
        if changes:
            request = pb.UpdatePolicyRequest(changes=changes)
            await master.ask(master.access.UpdatePolicy, request)
        token.token_id = made.token_id
        if lifetime_s is not None:
            token.expires_ms = now.time_ms + round(lifetime_s * 1000)
        asked = pb.CreateTokenRequest(token=token, token_hash=made.hash)
        return (await master.ask(master.access.CreateToken, asked)).token

    try:
        view = as_object(run(target, create))
    except CroupierError:
        if options.output is not None:
            options.output.unlink(missing_ok=True)
        raise
    _print_token(view, made.text, groups, options)


def _print_token(view: View, text: str, groups: Sequence[str], options: TokenOptions) -> None:
    """Print the token alone on stdout, and what it is on stderr."""
    where = {"token": text} if options.output is None else {"file": str(options.output)}
    if options.as_json:
        print(json.dumps({**view, "groups": list(groups), **where}, indent=2))
        return
    until = f"until {view['expires']}" if view["expires"] else "without expiry"
    member = f", in {', '.join(groups)}" if groups else ""
    about = f"token {view['token_id']} for {scope_text(view)}{member}, {until}"
    if options.output is None:
        print_lines(f"{about}; it is shown only now:", file=sys.stderr)
        print(text)
    else:
        print_lines(f"{about}, is in {options.output}")


def list_tokens(target: Target, *, as_json: bool) -> None:
    """Print all tokens.

    Raises:
        CroupierError: if the master refuses.
    """

    async def listed(master: Master) -> list[View]:
        return [as_object(token) async for token in _tokens(master)]

    print_objects(TOKENS, run(target, listed), as_json=as_json)


def revoke_tokens(named: str, change: Change) -> None:
    """Revoke the token of this id, or all tokens of a principal, and print them.

    Raises:
        NotFound: if there is none.
        CroupierError: if the master refuses.
    """

    async def revoke(master: Master) -> list[View]:
        found = [
            token
            async for token in _tokens(master)
            if named in (token.token_id, token.principal or None)
        ]
        if not found:
            raise NotFound(f"no token has the id or the principal {named!r}; croupier token list")
        if not change.dry_run:
            for token in found:
                request = pb.RevokeTokenRequest(token_id=token.token_id)
                await master.ask(master.access.RevokeToken, request)
        return [as_object(token) for token in found]

    views = run(change.master, revoke)
    done = "would be revoked" if change.dry_run else "is revoked"
    lines = [f"token {view['token_id']} for {scope_text(view)} {done}" for view in views]
    print_result({"dry_run": change.dry_run, "tokens": views}, *lines, as_json=change.as_json)


async def _tokens(master: Master) -> AsyncIterator[pb.Token]:
    request = pb.ListTokensRequest()
    while True:
        page = await master.ask(master.access.ListTokens, request)
        for token in page.tokens:
            yield token
        if page.next_page_token in ("", request.page_token):
            return
        request.page_token = page.next_page_token
