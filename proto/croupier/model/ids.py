"""Identifiers and their rules, which are those of Mesos.

An id names a directory on an agent, so it must not lead out of one. A role is a path of such
components.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NewType

from croupier.model.errors import InvalidRequest

AgentId = NewType("AgentId", str)
FrameworkId = NewType("FrameworkId", str)
HoldId = NewType("HoldId", str)
OfferId = NewType("OfferId", str)
ReservationId = NewType("ReservationId", str)
TaskId = NewType("TaskId", str)
Role = NewType("Role", str)

MAX_ID_BYTES = 255
MAX_HOSTNAME = 255
MAX_ROLE_BYTES = 1024
MAX_ROLE_DEPTH = 32
MAX_ROLES = 32
# All roles of one framework together: each component is a node of the share tree.
MAX_ROLES_BYTES = 4096
MAX_ROLES_COMPONENTS = 128
DEFAULT_ROLE = Role("*")
NO_HOLD = HoldId("")
NO_RESERVATION = ReservationId("")
# Who has what is held for a role, and who made what an operator made.
NO_FRAMEWORK = FrameworkId("")
# Printable ASCII but space, slash and backslash, of up to 255 characters: most ids. To look at each
# character in turn takes 5 us.
_is_usual = re.compile(r"[!-.0-\[\]-~]{1,255}").fullmatch
# Ids that masters and agents make.
_ASSIGNED = re.compile(r".+-([1-9][0-9]*-[AFHOR][1-9][0-9]*)|(A[0-9a-f]{6})[0-9a-f]{10}", re.ASCII)


def check_id(kind: str, value: str) -> str:
    """Return `value` if it is a legal id.

    Raises InvalidRequest if it is empty, over 255 bytes, `.` or `..`, or holds a slash, a
    backslash, white space or a control character.
    """
    if _is_usual(value) and value not in (".", ".."):
        return value
    if not value:
        raise InvalidRequest(f"{kind} id is empty")
    if len(value.encode(errors="replace")) > MAX_ID_BYTES:
        raise InvalidRequest(f"{kind} id is longer than {MAX_ID_BYTES} bytes")
    if value in (".", "..") or not all(_is_plain(char) for char in value):
        raise InvalidRequest(f"{kind} id {value!r} holds a character that ids must not have")
    return value


def short_id(value: str) -> str:
    """Return the short form of an id, for people; ids that users chose are returned as they are.

    An id that a master assigned loses its cluster, as in `1-F16`. An id that an agent made for
    itself is cut, as in `A38fe8e`; two agents may have the same short form.
    """
    found = _ASSIGNED.fullmatch(value)
    return (found[1] or found[2]) if found else value


def check_hostname(value: str) -> str:
    """Return `value` if it has 1 to 255 printable characters; else raise InvalidRequest."""
    if not 1 <= len(value) <= MAX_HOSTNAME or not value.isprintable():
        raise InvalidRequest(f"a hostname has 1 to {MAX_HOSTNAME} printable characters")
    return value


def check_role(value: str) -> Role:
    """Return a role, `*` or up to 32 components joined by `/`; raises InvalidRequest if illegal."""
    if value == DEFAULT_ROLE:
        return DEFAULT_ROLE
    if not value:
        raise InvalidRequest("the role is empty")
    if len(value.encode(errors="replace")) > MAX_ROLE_BYTES:
        raise InvalidRequest(f"role is longer than {MAX_ROLE_BYTES} bytes")
    components = value.split("/")
    if len(components) > MAX_ROLE_DEPTH:
        raise InvalidRequest(f"role {value[:80]!r}... has more than {MAX_ROLE_DEPTH} components")
    for component in components:
        legal = component not in ("", ".", "..", "*") and all(_is_plain(c) for c in component)
        if not legal or component.startswith("-"):
            raise InvalidRequest(f"role {value!r} has an illegal component {component!r}")
    return Role(value)


def check_roles(values: Iterable[str]) -> tuple[Role, ...]:
    """Return `values` as the roles of one framework.

    Raises InvalidRequest if there are none or over 32, one is illegal or given twice, or all
    together have over 4,096 bytes or 128 components.
    """
    roles = tuple(check_role(value) for value in islice(values, MAX_ROLES + 1))
    if not roles:
        raise InvalidRequest("a framework has at least one role")
    if len(roles) > MAX_ROLES:
        raise InvalidRequest(f"a framework has at most {MAX_ROLES} roles")
    if len(set(roles)) < len(roles):
        twice = next(role for role in roles if roles.count(role) > 1)
        raise InvalidRequest(f"role {twice!r} is given twice")
    if sum(len(role.encode()) for role in roles) > MAX_ROLES_BYTES:
        raise InvalidRequest(
            f"the roles of a framework have at most {MAX_ROLES_BYTES} bytes in all"
        )
    if sum(role.count("/") + 1 for role in roles) > MAX_ROLES_COMPONENTS:
        raise InvalidRequest(
            f"the roles of a framework have at most {MAX_ROLES_COMPONENTS} components in all"
        )
    return roles


def _is_plain(char: str) -> bool:
    return char.isprintable() and not char.isspace() and char not in "/\\"
