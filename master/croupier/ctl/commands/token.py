"""`croupier token`.

Rule: a token is made here. Only its id and the hash of its secret are sent, and it is printed once,
or written to a file that did not exist. It is never part of a log line or an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag
from croupier.cli.table import Column, Table, text
from croupier.cli.terminal import View, print_lines
from croupier.ctl.app import family
from croupier.ctl.lists import all_of
from croupier.ctl.operation import print_objects, print_result
from croupier.model.durations import parse_duration
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound
from croupier.model.principal import PrincipalKind, principal_name
from croupier.model.resources import Resources
from croupier.net.credentials import create_token_file, make_token
from croupier.process.cli import make_app
from croupier.v1 import access_pb2 as pb
from croupier.wire.resources import resources_to_wire

token = family("token")
create = make_app("create", "Create a token. It is shown once.", reads_environment=False)
token.command(create)

NEVER = "never"


def scope_text(token: View) -> str:
    """Return the holder of the token: a principal, or the agents that may join with it."""
    if token["kind"] != "join":
        return str(token["principal"])
    uses = token["uses_left"]
    number = "any number of agents" if uses is None else f"{uses} more agent{'s'[: uses != 1]}"
    most = token["max_resources"]["text"]
    return ", ".join((number, *token["attributes"], *([f"at most {most}"] if most else ())))


TOKENS = Table(
    (
        text("id", "token_id", is_id=True),
        text("kind", "kind"),
        Column("for", scope_text),
        Column("expires", lambda view: view["expires"] or "never"),
        text("created", "created", 2),
        text("created by", "created_by", 1),
        text("description", "description", 1),
    ),
    "no tokens",
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Creation:
    """Common flags of commands that create a token."""

    output: Annotated[
        Path | None,
        Parameter(help="Write the token to this new file of mode 0600, in place of printing it."),
    ] = None
    description: Annotated[str, Parameter(help="A note for the list.")] = ""
    master: MasterFlag = LOCAL
    as_json: JsonFlag = False


CREATION = Creation()
ExpiresFlag = Annotated[
    str, Parameter(name="--expires", help="Lifetime of the token, such as 12h or 30d; or never.")
]


@create.command(name="client")
def create_client(
    name: str,
    /,
    *,
    expires: ExpiresFlag = "30d",
    group: Annotated[list[str] | None, Parameter(negative="")] = None,
    creation: Creation = CREATION,
) -> None:
    """Create a token of a person or a program, the principal client/NAME.

    Args:
        name: Name of the client, such as alice or ci. A client may have several tokens.
        group: Add the principal to this group, such as operator or viewer; may be repeated.
    """
    principal = principal_name(PrincipalKind.CLIENT, name)
    made = pb.Token(kind=pb.TOKEN_KIND_CLIENT, principal=principal)
    _create_token(made, group or (), expires, creation)


@create.command(name="join")
def create_join(
    *,
    uses: int = 1,
    expires: ExpiresFlag = "1h",
    attribute: Annotated[list[str] | None, Parameter(negative="")] = None,
    max_resources: str = "",
    creation: Creation = CREATION,
) -> None:
    """Create a token with which agents without a certificate join the cluster.

    Each agent that joins gets a token of its own, which stays valid when this one expires.

    Args:
        uses: The number of agents that may join; 0 for any number.
        attribute: NAME:VALUE that an agent must have, such as rack:r1; may be repeated.
        max_resources: Maximum resources with which an agent may register, such as
            'cpus:64;mem:256GB'. Other resources are bounded by --max-agent-resources of the master
            only.
    """
    if uses < 0:
        raise InvalidRequest("--uses is 1 or more, or 0 for any number")
    for each in attribute or ():
        if not all(part.strip() for part in each.partition(":")):
            raise InvalidRequest(f"--attribute {each[:80]!r} is not NAME:VALUE (example: rack:r1)")
    made = pb.Token(kind=pb.TOKEN_KIND_JOIN, attributes=attribute)
    if uses:
        made.uses_left = uses
    if max_resources:
        made.max_resources.CopyFrom(resources_to_wire(Resources.parse(max_resources)))
    _create_token(made, (), expires, creation)


@token.command(name="list")
def list_command(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List all tokens, without their secrets."""
    print_objects(TOKENS, run(master, partial(all_of, kind="tokens")), as_json=as_json)


@token.command(name="revoke")
def revoke(named: str, /, *, change: Change = CHANGE) -> None:
    """Revoke a token, or all tokens of a principal. Its open connections end within a second.

    Args:
        named: Id of a token, as croupier token list shows it, or a principal such as client/alice.
    """

    async def revoked(leader: Master) -> list[View]:
        known = await all_of(leader, "tokens")
        found = [each for each in known if named in (each["token_id"], each["principal"] or None)]
        if not found:
            raise NotFound(f"no token has the id or the principal {named!r}; croupier token list")
        if not change.dry_run:
            for token in found:
                request = pb.RevokeTokenRequest(token_id=token["token_id"])
                await leader.ask(leader.access.RevokeToken, request)
        return found

    views = run(change.master, revoked)
    done = "would be revoked" if change.dry_run else "is revoked"
    lines = [f"token {view['token_id']} for {scope_text(view)} {done}" for view in views]
    print_result({"dry_run": change.dry_run, "tokens": views}, *lines, as_json=change.as_json)


def _create_token(token: pb.Token, groups: Sequence[str], expires: str, creation: Creation) -> None:
    """Make a token, store its hash, and print it or write it to a file; raises CroupierError."""
    lifetime_s = None if expires == NEVER else parse_duration(expires)
    made, output = make_token(), creation.output
    if output is not None:
        try:
            create_token_file(output, made)
        except FileExistsError:
            raise Conflict(f"{output} exists; choose another file") from None
        except OSError as error:
            raise InvalidRequest(f"cannot write {output}: {error.strerror}") from None

    async def created(master: Master) -> pb.Token:
        # By the master's clock, because it decides when the token expires.
        now = await master.ask(master.access.WhoAmI, pb.WhoAmIRequest())
        changes = [
            pb.PolicyChange(add_member=pb.Membership(group=group, member=token.principal))
            for group in groups
        ]
        if changes:
            await master.ask(master.access.UpdatePolicy, pb.UpdatePolicyRequest(changes=changes))
        token.token_id, token.description = made.token_id, creation.description
        if lifetime_s is not None:
            token.expires_ms = now.time_ms + round(lifetime_s * 1000)
        asked = pb.CreateTokenRequest(token=token, token_hash=made.hash)
        return (await master.ask(master.access.CreateToken, asked)).token

    try:
        view = as_object(run(creation.master, created))
    except CroupierError:
        if output is not None:
            output.unlink(missing_ok=True)
        raise
    _print_token(view, made.text, groups, creation)


def _print_token(view: View, text: str, groups: Sequence[str], creation: Creation) -> None:
    """Print the token alone on stdout, and its description on stderr."""
    output = creation.output
    where = {"token": text} if output is None else {"file": str(output)}
    if creation.as_json:
        print(json.dumps({**view, "groups": list(groups), **where}, indent=2))
        return
    until = f"until {view['expires']}" if view["expires"] else "without expiry"
    member = f", in {', '.join(groups)}" if groups else ""
    about = f"token {view['token_id']} for {scope_text(view)}{member}, {until}"
    if output is None:
        print_lines(f"{about}; it is shown only now:", file=sys.stderr)
        print(text)
    else:
        print_lines(f"{about}, is in {output}")
