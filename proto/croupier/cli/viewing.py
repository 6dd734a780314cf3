"""What the caller may view, for the words of empty lists.

Rule: a list that is empty only for the caller is never called empty.
"""

from __future__ import annotations

import re
from typing import Final

from croupier.cli.connection import Master
from croupier.model.access import (
    ALL_ROLES,
    ANY,
    CLUSTER,
    Action,
    Object,
    agent_object,
    role_object,
)
from croupier.model.errors import CroupierError
from croupier.v1 import access_pb2 as pb

ALL_AGENTS: Final = agent_object(ANY)
EVERY_ROLE: Final = role_object(ALL_ROLES)
TOTALS: Final = CLUSTER
_NONE: Final = re.compile(r"^no (\w+)")


async def may_view(master: Master, target: Object) -> bool:
    """Return whether the caller may view `target`; True if the master does not tell."""
    request = pb.CheckAccessRequest(action=Action.VIEW.value, object=str(target))
    try:
        return (await master.ask(master.access.CheckAccess, request)).allowed
    except CroupierError:
        return True


def restricted(empty: str) -> str:
    """Return the words for an empty list, such as `no agents are registered`, of what is visible.

    They are for callers that may not view all objects of the kind.
    """
    return _NONE.sub(r"no \1 that you may view", empty)
