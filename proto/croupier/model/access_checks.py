"""Checks of rules, subjects, members and actions, as administrators write them."""

from __future__ import annotations

from croupier.model import access
from croupier.model.errors import InvalidRequest
from croupier.model.ids import check_id
from croupier.model.isolation import Isolation
from croupier.model.principal import check_principal


def check_rule(rule: access.Rule) -> access.Rule:
    """Return `rule` if it is legal.

    Raises InvalidRequest if its name, subject or object is malformed, it has no action, or an
    action that does not take the object.
    """
    check_id("rule", rule.name)
    if rule.name in (each.name for each in access.BUILTIN_RULES):
        raise InvalidRequest(f"{rule.name!r} is a built-in rule; choose another name")
    check_subject(rule.subject)
    if not rule.actions:
        raise InvalidRequest(f"rule {rule.name!r} has no action")
    if rule.object != access.ANY:
        target = access.Object(_check_pattern(rule.object))
        for action in rule.actions:
            check_action(action, target)
    return rule


def check_subject(text: str) -> str:
    """Return `text` if it is a principal's name or `group:NAME`; else raise InvalidRequest."""
    kind, colon, group = text.partition(":")
    if colon and kind == "group":
        return check_id("group", group) and text
    return check_principal(text)


def check_member(text: str) -> str:
    """Return `text` if it is a principal's name or `oidc:GROUP`; else raise InvalidRequest."""
    kind, _, group = text.partition(":")
    if kind == "oidc" and "/" not in kind and group:
        return check_id("group", group.replace("/", "-")) and text
    return check_principal(text)


def parse_action(text: str) -> access.Action:
    """Return the action of that name; raises InvalidRequest if there is none."""
    for action in access.Action:
        if action.value == text:
            return action
    known = ", ".join(action.value for action in access.Action)
    raise InvalidRequest(f"{text[:80]!r} is no action; actions are {known}")


def check_action(action: access.Action, target: access.Object) -> None:
    """Raise InvalidRequest if the action is not one that is done to such an object."""
    if target.kind not in access.TAKES[action]:
        kinds = " or ".join(sorted(kind.value for kind in access.TAKES[action]))
        raise InvalidRequest(f"{action.value} is not done to {target.kind.value}; it takes {kinds}")


def _check_pattern(text: str) -> access.ObjectKind:
    kind, name = access.split_object(text)
    is_any = name == (access.ALL_ROLES if kind is access.ObjectKind.ROLE else access.ANY)
    if kind is access.ObjectKind.IMAGE and not is_any:
        return _check_images(name)
    if is_any:
        return kind
    access.Object.parse(text)
    # Such names are legal, but in a rule they are nearly always a list of objects.
    if "," in name or ":" in name:
        raise InvalidRequest(
            f"{text[:80]!r}: a rule has one object, whose name has no comma or colon; add a rule"
            " with a name of its own for each object"
        )
    if kind is not access.ObjectKind.ROLE and access.ANY in name:
        raise InvalidRequest(f"{text[:80]!r}: {access.ANY} stands alone, for every {kind.value}")
    return kind


def _check_images(name: str) -> access.ObjectKind:
    prefix = name.removesuffix(access.ANY)
    # Else a prefix of a registry or a directory would allow others that begin with its name.
    if access.ANY in prefix or (prefix != name and not prefix.endswith(("/", ":", "@"))):
        raise InvalidRequest(
            f"image:{name[:80]}: {access.ANY} stands at the end, after a slash, a colon or an @"
        )
    Isolation(image=f"{prefix}x" if prefix != name else name or " ").check()
    return access.ObjectKind.IMAGE
