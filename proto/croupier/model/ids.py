"""Identifiers, and what makes a legal one.

The rules are Mesos': an id names a directory on an agent, so it must not be able
to leave one; a role is a path of such components.
"""

from __future__ import annotations

from typing import NewType

from croupier.model.errors import InvalidRequest

AgentId = NewType("AgentId", str)
FrameworkId = NewType("FrameworkId", str)
OfferId = NewType("OfferId", str)
TaskId = NewType("TaskId", str)
Role = NewType("Role", str)

MAX_ID_BYTES = 255
MAX_ROLE_BYTES = 1024
DEFAULT_ROLE = Role("*")


def check_id(kind: str, value: str) -> str:
    """Return `value` if it is a legal id.

    Raises:
        InvalidRequest: if it is empty, over 255 bytes, `.` or `..`, or holds a
            slash, a backslash, white space or a control character.
    """
    if not value:
        raise InvalidRequest(f"{kind} id is empty")
    if len(value.encode(errors="replace")) > MAX_ID_BYTES:
        raise InvalidRequest(f"{kind} id is longer than {MAX_ID_BYTES} bytes")
    if value in (".", "..") or not all(_is_plain(char) for char in value):
        raise InvalidRequest(f"{kind} id {value!r} holds a character that ids must not have")
    return value


def check_role(value: str) -> Role:
    """Return `value` as a role if it is a legal one: `*`, or components joined by `/`.

    Raises:
        InvalidRequest: if it is not.
    """
    if value == DEFAULT_ROLE:
        return DEFAULT_ROLE
    if len(value.encode(errors="replace")) > MAX_ROLE_BYTES:
        raise InvalidRequest(f"role is longer than {MAX_ROLE_BYTES} bytes")
    for component in value.split("/"):
        legal = component not in ("", ".", "..", "*") and all(_is_plain(c) for c in component)
        if not legal or component.startswith("-"):
            raise InvalidRequest(f"role {value!r} has an illegal component {component!r}")
    return Role(value)


def _is_plain(char: str) -> bool:
    return char.isprintable() and not char.isspace() and char not in "/\\"
