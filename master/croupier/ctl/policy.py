"""Who may do what: showing, explaining and changing the access policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from croupier.api.objects import as_object
from croupier.cli.amounts import View
from croupier.cli.connection import Master, run
from croupier.cli.flags import Change, Target
from croupier.cli.table import print_table
from croupier.ctl.operation import UNCHANGED, print_objects, print_result
from croupier.ctl.views.policy import GROUPS, REVOKED, RULES, difference_lines
from croupier.model.access import Object, Rule
from croupier.model.access_checks import check_action, check_member, check_rule, parse_action
from croupier.model.ids import check_id
from croupier.model.principal import check_principal
from croupier.v1 import access_pb2 as pb

DENIED = 3


def show_policy(target: Target, *, only_groups: bool = False, as_json: bool) -> None:
    """Print groups and rules; raises as `run`."""
    view = as_object(run(target, _policy))
    if as_json:
        print(json.dumps(view["groups"] if only_groups else view, indent=2))
        return
    print_table(GROUPS, view["groups"], sys.stdout)
    if not only_groups:
        print()
        print_table(RULES, view["rules"], sys.stdout)
    if view["revoked_keys"] and not only_groups:
        print()
        print_table(REVOKED, view["revoked_keys"], sys.stdout)


def show_caller(target: Target, *, as_json: bool) -> None:
    """Print the principal that the master identifies the caller as; raises as `run`."""

    async def asked(master: Master) -> View:
        answer = await master.ask(master.access.WhoAmI, pb.WhoAmIRequest())
        return {**as_object(answer), "master": str(master.address)}

    view = run(target, asked)
    print_result(view, *caller_lines(view, target), as_json=as_json)


def caller_lines(view: View, target: Target) -> list[str]:
    """Return lines about the caller."""
    if not view["is_auth_on"]:
        return [f"authentication is off at {view['master']}: every caller may do everything"]
    expires = f"; it expires {view['expires']}" if view["expires"] else ""
    return [
        view["principal"] or "no principal",
        f"  groups      {', '.join(view['groups']) or 'none'}",
        f"  credential  {view['credential']}: {target.credentials().text}{expires}",
        f"  master      {view['master']}",
    ]


def check_access(
    target: Target,
    principal: str,
    action: str,
    on: str,
    groups: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Print whether a principal may do something and why; return exit code 0, or 3 if denied.

    Raises:
        InvalidRequest: if an argument is malformed.
        CroupierError: as `run`.
    """
    if principal:
        check_principal(principal)
    check_action(parse_action(action), Object.parse(on))
    request = pb.CheckAccessRequest(principal=principal, groups=groups, action=action, object=on)
    answer = run(target, lambda master: master.ask(master.access.CheckAccess, request))
    view = {"allowed": answer.allowed, "rule": answer.rule, "reason": answer.reason}
    default = f"rule {answer.rule!r}" if answer.allowed else "no rule allows it"
    line = f"{'allowed' if answer.allowed else 'denied'}: {answer.reason or default}"
    print_result(view, line, as_json=as_json)
    return 0 if answer.allowed else DENIED


def grant(rule: Rule, change: Change) -> None:
    """Add or replace a rule.

    Raises:
        InvalidRequest: if it is malformed.
        CroupierError: as `run`.
    """
    check_rule(rule)
    wire = pb.Rule(
        name=rule.name,
        subject=rule.subject,
        actions=[action.value for action in rule.actions],
        object=rule.object,
    )
    _change(lambda _: [pb.PolicyChange(set_rule=wire)], change)


def revoke(rule: str, change: Change) -> None:
    """Remove a rule; raises as `grant`."""
    check_id("rule", rule)
    _change(lambda _: [pb.PolicyChange(remove_rule=rule)], change)


def show_revoked(target: Target, *, as_json: bool) -> None:
    """Print the revoked keys; raises as `run`."""
    keys = as_object(run(target, _policy))["revoked_keys"]
    print_objects(REVOKED, keys, as_json=as_json)


def revoke_key(key_id: str, description: str, change: Change) -> None:
    """Refuse all certificates with a key; raises as `grant`."""
    key = pb.RevokedKey(key_id=key_id, description=description)
    _change(lambda _: [pb.PolicyChange(revoke_key=key)], change)


def restore_key(key_id: str, change: Change) -> None:
    """Accept the certificates with a revoked key again; raises as `grant`."""
    _change(lambda _: [pb.PolicyChange(restore_key=key_id)], change)


def add_members(group: str, members: Sequence[str], change: Change) -> None:
    """Add principals to a group, which is made if there is none; raises as `grant`."""
    check_id("group", group)
    asked = [check_member(member) for member in members]

    def changes(policy: pb.GetPolicyResponse) -> list[pb.PolicyChange]:
        if all(each.name != group for each in policy.groups):
            return [pb.PolicyChange(set_group=pb.Group(name=group, members=asked))]
        added = [pb.Membership(group=group, member=member) for member in asked]
        return [pb.PolicyChange(add_member=each) for each in added]

    _change(changes, change)


def remove_members(group: str, members: Sequence[str], change: Change) -> None:
    """Remove principals from a group, or without any the whole group; raises as `grant`."""
    check_id("group", group)
    asked = [check_member(member) for member in members]

    def changes(_: pb.GetPolicyResponse) -> list[pb.PolicyChange]:
        if not asked:
            return [pb.PolicyChange(remove_group=group)]
        removed = [pb.Membership(group=group, member=member) for member in asked]
        return [pb.PolicyChange(remove_member=each) for each in removed]

    _change(changes, change)


async def _policy(master: Master) -> pb.GetPolicyResponse:
    return await master.ask(master.access.GetPolicy, pb.GetPolicyRequest())


def _change(
    changes: Callable[[pb.GetPolicyResponse], list[pb.PolicyChange]], change: Change
) -> None:
    """Change the policy, or only check that with `dry_run`, and print the differences."""

    async def changed(master: Master) -> tuple[View, View]:
        before = await _policy(master)
        request = pb.UpdatePolicyRequest(changes=changes(before), dry_run=change.dry_run)
        answer = await master.ask(master.access.UpdatePolicy, request)
        return as_object(before), as_object(answer.policy)

    before, after = run(change.master, changed)
    lines = list(difference_lines(before, after))
    view = {"dry_run": change.dry_run, "changes": lines, **after}
    head = [UNCHANGED] if change.dry_run else []
    print_result(view, *head, *lines, as_json=change.as_json)
