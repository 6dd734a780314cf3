"""Groups and rules, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.cli.table import Column, Table, text
from croupier.cli.terminal import View


def rule_text(rule: View) -> str:
    """Return a rule as a sentence."""
    return f"{rule['subject']} may {', '.join(rule['actions'])} on {rule['object']}"


def difference_lines(before: View, after: View) -> Iterator[str]:
    """Yield a line for each change of a policy; one line if there is none."""
    lines = [*_group_lines(before, after), *_rule_lines(before, after), *_key_lines(before, after)]
    yield from lines or ["nothing is different"]


def _group_lines(before: View, after: View) -> Iterator[str]:
    old, new = (
        {group["name"]: set(group["members"]) for group in policy["groups"]}
        for policy in (before, after)
    )
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"group {name} is removed"
        elif name not in old and not new[name]:
            yield f"group {name} is added"
        for member in sorted(new.get(name, set()) - old.get(name, set())):
            yield f"group {name}: {member} is added"
        for member in sorted(old.get(name, set()) - new.get(name, set())):
            yield f"group {name}: {member} is removed"


def _rule_lines(before: View, after: View) -> Iterator[str]:
    old, new = ({rule["name"]: rule for rule in policy["rules"]} for policy in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"rule {name} is removed: {rule_text(old[name])}"
        elif name not in old:
            yield f"rule {name} is added: {rule_text(new[name])}"
        elif old[name] != new[name]:
            yield f"rule {name} was: {rule_text(old[name])}"
            yield f"rule {name} is now: {rule_text(new[name])}"


def _key_lines(before: View, after: View) -> Iterator[str]:
    old, new = (
        {key["key_id"]: key["description"] for key in policy["revoked_keys"]}
        for policy in (before, after)
    )
    for key_id in sorted(old.keys() | new.keys()):
        if key_id not in new:
            yield f"key {key_id} is restored: {old[key_id]}"
        elif key_id not in old:
            yield f"key {key_id} is revoked: {new[key_id]}"


GROUPS = Table(
    (
        text("group", "name", is_id=True),
        Column("built in", lambda view: "yes" if view["is_builtin"] else "", rank=1),
        Column("members", lambda view: ", ".join(view["members"])),
    ),
    "no groups",
)
RULES = Table(
    (
        text("rule", "name", is_id=True),
        text("subject", "subject"),
        Column("actions", lambda view: ", ".join(view["actions"])),
        text("object", "object"),
        Column("built in", lambda view: "yes" if view["is_builtin"] else "", rank=1),
    ),
    "no rules",
)
REVOKED = Table(
    (text("revoked key", "key_id", is_id=True), text("description", "description")),
    "no revoked keys",
)
