"""The resources that an agent may register with.

Rule: shares are fractions of all agents' resources. So an agent that invents resources would take
from all frameworks, and is refused.
"""

from __future__ import annotations

from croupier.master.core.events import Register
from croupier.master.core.state import State
from croupier.model.errors import Conflict
from croupier.model.resources import Resources


def check_size(state: State, event: Register) -> None:
    """Check the agent's resources against the bounds of the cluster and of its join token.

    Raises:
        Conflict: if it has more.
    """
    bounds = {"--max-agent-resources of the master": state.settings.max_agent}
    token = state.tokens.of_agent(event.agent_id)
    if state.access.is_on and token is not None:
        bounds["the token with which it joined"] = token.max_resources
    for whose, bound in bounds.items():
        named = Resources({name: event.total[name] for name in bound.scalars})
        if excess := named.excess(bound):
            raise Conflict(
                f"the agent has too many resources: {excess}, which {whose} allows; correct its"
                " --resources, or raise the bound"
            )
