"""`croupier access`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag
from croupier.ctl.app import family

access = family(
    "access",
    "Show, explain and change who may do what in a cluster with authentication.\n\n"
    "Everything that no rule allows is denied. A principal is client/NAME, agent/ID or"
    " oidc/SUBJECT.",
)
group = family("group", "List groups, and add and remove members.", within=access)

GroupName = Annotated[str, Parameter(help="The group; admin, operator and viewer are built in.")]


@access.command(name="show")
def show(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show all groups and rules."""
    from croupier.ctl.policy import show_policy

    show_policy(master, as_json=as_json)


@access.command(name="whoami")
def whoami(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show what the master identifies you as: principal, groups, credential."""
    from croupier.ctl.policy import show_caller

    show_caller(master, as_json=as_json)


@access.command(name="check")
def check(
    principal: str,
    action: str,
    on: str,
    /,
    *,
    group: Annotated[list[str] | None, Parameter(negative="")] = None,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> int:
    """Explain whether a principal may do something, and by which rule.

    Exit codes: 0 allowed; 3 denied; 1 the master refused or cannot be reached; 2 wrong argument.

    Parameters
    ----------
    principal
        Such as client/alice; me for yourself.
    action
        register, run-as, view, read-output, read-files, exec, kill, teardown, operate-agents,
        change-roles, read-metrics, administer or launch-image.
    on
        role:PATH, agent:ID, user:NAME, image:NAME or cluster.
    group
        A further group of the principal, such as one of an identity provider; may be repeated.
    """
    from croupier.ctl.policy import check_access

    named = "" if principal == "me" else principal
    return check_access(master, named, action, on, group or (), as_json=as_json)


@access.command(name="grant")
def grant(
    name: str,
    /,
    *,
    to: str,
    action: Annotated[list[str], Parameter(negative="")],
    on: str,
    change: Change = CHANGE,
) -> None:
    """Add a rule, or replace the one of that name.

    Parameters
    ----------
    name
        Any name for the rule, such as ads-team.
    to
        A principal such as client/alice, or group:NAME.
    action
        What it may do, such as register,run-as; may be repeated. See croupier access check --help.
    on
        role:PATH (with all roles below it), `role:**` (all roles), agent:ID, `agent:*`, user:NAME,
        `user:*`, image:NAME, `image:PREFIX/*`, `image:*`, cluster, or `*` (everything). A rule has
        one object: add a rule with a name of its own for each further one.
    """
    from croupier.ctl.policy import grant as grant_rule
    from croupier.model.access import Rule
    from croupier.model.access_checks import parse_action

    words = [word.strip() for text in action for word in text.split(",") if word.strip()]
    rule = Rule(name, to, tuple(parse_action(word) for word in dict.fromkeys(words)), on)
    grant_rule(rule, change)


@access.command(name="revoke")
def revoke(
    rule: str,
    /,
    *,
    change: Change = CHANGE,
) -> None:
    """Remove a rule.

    Parameters
    ----------
    rule
        Its name, as croupier access show prints it.
    """
    from croupier.ctl.policy import revoke as revoke_rule

    revoke_rule(rule, change)


@group.command(name="list")
@group.default
def group_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List all groups with their members."""
    from croupier.ctl.policy import show_policy

    show_policy(master, only_groups=True, as_json=as_json)


@group.command(name="add")
def group_add(
    name: GroupName,
    /,
    *members: str,
    change: Change = CHANGE,
) -> None:
    """Add members to a group, or make a group.

    Parameters
    ----------
    members
        Principals such as client/alice, or groups of an identity provider as oidc:NAME.
    """
    from croupier.ctl.policy import add_members

    add_members(name, members, change)


@group.command(name="remove")
def group_remove(
    name: GroupName,
    /,
    *members: str,
    change: Change = CHANGE,
) -> None:
    """Remove members from a group; without members, remove the group.

    Parameters
    ----------
    members
        Principals such as client/alice, or groups of an identity provider as oidc:NAME.
    """
    from croupier.ctl.policy import remove_members

    remove_members(name, members, change)
