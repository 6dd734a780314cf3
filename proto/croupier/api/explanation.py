"""Why a framework gets no more offers."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.frameworks import Framework
from croupier.api.objects import as_object
from croupier.api.roles import Role
from croupier.v1 import operator_pb2 as pb


class Reason(TypedDict):
    """A cause for which a framework was passed over.

    Attributes:
        cause: one of a fixed list of words, such as `limit`.
        agents: the number of agents.
        detail: the latest case, in words and numbers.
    """

    cause: str
    role: str
    agents: int
    about_agent_id: str | None
    about_role: str | None
    detail: str


class Explanation(TypedDict):
    """Why a framework gets no more offers.

    Attributes:
        roles: those of the framework and above them, from the top down.
        reasons: the latest first; none: nothing has kept it from more offers.
        policy: `--policy` of the master.
        lined_up_hosts: where tasks of the framework are lined up.
    """

    framework: Framework
    roles: list[Role]
    reasons: list[Reason]
    policy: str
    lined_up_hosts: list[str]


def explanation_view(answer: pb.ExplainResponse) -> Explanation:
    """Return why a framework gets no more offers."""
    return as_object(Explanation, answer)
