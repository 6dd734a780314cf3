"""`croupier token`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag
from croupier.ctl.app import family

token = family("token", "Create, list and revoke tokens of clients, and join tokens of agents.")
create = family("create", "Create a token. It is shown once.", within=token)

OutputFlag = Annotated[
    Path | None,
    Parameter(
        name="--output",
        help="Write the token to this new file of mode 0600, in place of printing it.",
    ),
]
DescriptionFlag = Annotated[str, Parameter(name="--description", help="A note for the list.")]
ExpiresFlag = Annotated[
    str,
    Parameter(name="--expires", help="Time until it expires, such as 12h or 30d; or never."),
]


@create.command(name="client")
def create_client(
    name: str,
    /,
    *,
    expires: ExpiresFlag = "30d",
    group: Annotated[list[str] | None, Parameter(negative="")] = None,
    output: OutputFlag = None,
    description: DescriptionFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Create a token of a person or a program, the principal client/NAME.

    Parameters
    ----------
    name
        Such as alice, or ci. It may have several tokens.
    group
        Add the principal to this group, such as operator or viewer; may be repeated.
    """
    from croupier.ctl.tokens import TokenOptions, client_token, create_token

    options = TokenOptions(expires, output, description, as_json)
    create_token(master, client_token(name, description), group or (), options)


@create.command(name="join")
def create_join(
    *,
    uses: int = 1,
    expires: ExpiresFlag = "1h",
    attribute: Annotated[list[str] | None, Parameter(negative="")] = None,
    max_resources: str = "",
    output: OutputFlag = None,
    description: DescriptionFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Create a token with which agents without a certificate join the cluster.

    Each agent that joins gets a token of its own, which stays valid when this one expires.

    Parameters
    ----------
    uses
        The number of agents that may join; 0 for any number.
    attribute
        NAME:VALUE that an agent must have, such as rack:r1; may be repeated.
    max_resources
        Most resources that an agent may register with, such as 'cpus:64;mem:256GB'; a resource that
        is not named is bounded by --max-agent-resources of the master only.
    """
    from croupier.ctl.tokens import TokenOptions, create_token, join_token

    options = TokenOptions(expires, output, description, as_json)
    create_token(master, join_token(uses, attribute or (), description, max_resources), (), options)


@token.command(name="list")
def list_command(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List all tokens, without their secrets."""
    from croupier.ctl.tokens import list_tokens

    list_tokens(master, as_json=as_json)


@token.command(name="revoke")
def revoke(
    named: str,
    /,
    *,
    change: Change = CHANGE,
) -> None:
    """Revoke a token, or all tokens of a principal. Its open connections end within a second.

    Parameters
    ----------
    named
        Id of a token, as croupier token list shows it, or a principal such as client/alice.
    """
    from croupier.ctl.tokens import revoke_tokens

    revoke_tokens(named, change)
