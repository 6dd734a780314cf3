"""`croupier access`: shows, explains and changes the access policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.connection import Master, run
from croupier.cli.flags import CHANGE, LOCAL, Change, JsonFlag, JsonListFlag, MasterFlag, Target
from croupier.cli.table import print_table
from croupier.cli.terminal import View
from croupier.ctl.app import family
from croupier.ctl.operation import UNCHANGED, print_objects, print_result
from croupier.ctl.views.policy import GROUPS, REVOKED, RULES, difference_lines
from croupier.model.access import Object, Rule
from croupier.model.access_checks import check_action, check_member, check_rule, parse_action
from croupier.model.ids import check_id
from croupier.model.principal import check_principal
from croupier.process.cli import make_app
from croupier.v1 import access_pb2 as pb

DENIED = 3

access = family(
    "access",
    "Everything that no rule allows is denied. A principal is client/NAME, agent/ID or"
    " oidc/SUBJECT.",
)
group = make_app("group", "List groups, and add and remove members.", reads_environment=False)
access.command(group)

GroupName = Annotated[str, Parameter(help="The group; admin, operator and viewer are built in.")]


@access.command(name="show")
def show(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show all groups and rules."""
    view = get_policy(master)
    if as_json:
        print(json.dumps(view, indent=2))
        return
    print_table(GROUPS, view["groups"], sys.stdout)
    print()
    print_table(RULES, view["rules"], sys.stdout)
    if view["revoked_keys"]:
        print()
        print_table(REVOKED, view["revoked_keys"], sys.stdout)


@access.command(name="whoami")
def whoami(*, master: MasterFlag = LOCAL, as_json: JsonFlag = False) -> None:
    """Show how the master identifies you: principal, groups, credential."""

    async def asked(leader: Master) -> View:
        answer = await leader.ask(leader.access.WhoAmI, pb.WhoAmIRequest())
        return {**as_object(answer), "master": str(leader.address)}

    view = run(master, asked)
    print_result(view, *_caller_lines(view, master), as_json=as_json)


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

    Args:
        principal: The principal to check, such as client/alice; me is yourself.
        action: One of register, run-as, view, read-output, read-files, exec, kill, teardown,
            operate-agents, change-roles, read-metrics, administer and launch-image.
        on: The object: role:PATH, agent:ID, user:NAME, image:NAME or cluster.
        group: Assume that the principal is in this group too, such as a group of an identity
            provider; may be repeated.
    """
    named = "" if principal == "me" else principal
    if named:
        check_principal(named)
    check_action(parse_action(action), Object.parse(on))
    request = pb.CheckAccessRequest(principal=named, groups=group, action=action, object=on)
    answer = run(master, lambda leader: leader.ask(leader.access.CheckAccess, request))
    view = {"allowed": answer.allowed, "rule": answer.rule, "reason": answer.reason}
    default = f"rule {answer.rule!r}" if answer.allowed else "no rule allows it"
    line = f"{'allowed' if answer.allowed else 'denied'}: {answer.reason or default}"
    print_result(view, line, as_json=as_json)
    return 0 if answer.allowed else DENIED


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

    Args:
        name: Name of the rule, such as ads-team.
        to: A principal such as client/alice, or group:NAME.
        action: Actions that the rule allows, such as register,run-as; may be repeated. croupier
            access check --help lists all actions.
        on: The object: role:PATH (with all roles below it), `role:**` (all roles), agent:ID,
            `agent:*`, user:NAME, `user:*`, image:NAME, `image:PREFIX/*`, `image:*`, cluster, or `*`
            (everything). A rule has one object: add a rule for each further one.
    """
    words = [word.strip() for text in action for word in text.split(",") if word.strip()]
    actions = [parse_action(word) for word in dict.fromkeys(words)]
    check_rule(Rule(name, to, tuple(actions), on))
    values = [action.value for action in actions]
    rule = pb.Rule(name=name, subject=to, actions=values, object=on)
    change_policy(lambda _: [pb.PolicyChange(set_rule=rule)], change)


@access.command(name="revoke")
def revoke(rule: str, /, *, change: Change = CHANGE) -> None:
    """Remove a rule.

    Args:
        rule: Name of the rule, as croupier access show prints it.
    """
    check_id("rule", rule)
    change_policy(lambda _: [pb.PolicyChange(remove_rule=rule)], change)


@group.command(name="list")
@group.default
def group_list(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> None:
    """List all groups with their members."""
    print_objects(GROUPS, get_policy(master)["groups"], as_json=as_json)


@group.command(name="add")
def group_add(name: GroupName, /, *members: str, change: Change = CHANGE) -> None:
    """Add members to a group. The group is created if it does not exist.

    Args:
        members: Principals such as client/alice, or groups of an identity provider as oidc:NAME.
    """
    check_id("group", name)
    asked = [check_member(member) for member in members]

    def changes(policy: pb.GetPolicyResponse) -> list[pb.PolicyChange]:
        if all(each.name != name for each in policy.groups):
            return [pb.PolicyChange(set_group=pb.Group(name=name, members=asked))]
        added = [pb.Membership(group=name, member=member) for member in asked]
        return [pb.PolicyChange(add_member=each) for each in added]

    change_policy(changes, change)


@group.command(name="remove")
def group_remove(name: GroupName, /, *members: str, change: Change = CHANGE) -> None:
    """Remove members from a group; without members, remove the group.

    Args:
        members: Principals such as client/alice, or groups of an identity provider as oidc:NAME.
    """
    check_id("group", name)
    removed = [pb.Membership(group=name, member=check_member(member)) for member in members]
    changes = [pb.PolicyChange(remove_member=each) for each in removed]
    change_policy(lambda _: changes or [pb.PolicyChange(remove_group=name)], change)


def _caller_lines(view: View, target: Target) -> list[str]:
    if not view["is_auth_on"]:
        return [f"authentication is off at {view['master']}: every caller may do everything"]
    expires = f"; it expires {view['expires']}" if view["expires"] else ""
    return [
        view["principal"] or "no principal",
        f"  groups      {', '.join(view['groups']) or 'none'}",
        f"  credential  {view['credential']}: {target.credentials().text}{expires}",
        f"  master      {view['master']}",
    ]


def get_policy(target: Target) -> View:
    """Return groups, rules and revoked keys; raises as `run`."""
    return as_object(run(target, _get_policy))


async def _get_policy(master: Master) -> pb.GetPolicyResponse:
    return await master.ask(master.access.GetPolicy, pb.GetPolicyRequest())


def change_policy(
    changes: Callable[[pb.GetPolicyResponse], list[pb.PolicyChange]], change: Change
) -> None:
    """Change the policy, or check it with `dry_run`; print the differences; raises as `run`."""

    async def changed(master: Master) -> tuple[View, View]:
        before = await _get_policy(master)
        request = pb.UpdatePolicyRequest(changes=changes(before), dry_run=change.dry_run)
        answer = await master.ask(master.access.UpdatePolicy, request)
        return as_object(before), as_object(answer.policy)

    before, after = run(change.master, changed)
    lines = list(difference_lines(before, after))
    view = {"dry_run": change.dry_run, "changes": lines, **after}
    head = [UNCHANGED] if change.dry_run else []
    print_result(view, *head, *lines, as_json=change.as_json)
