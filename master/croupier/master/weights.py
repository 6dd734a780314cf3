"""Default weights of roles, as the command line gives them.

An operator's settings override them; see `core.roles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role, check_role
from croupier.model.roles import RoleSettings, parse_weight
from croupier.model.scalar import format_milli


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights by role, in thousandths; the weight of any other role is 1."""

    by_role: Mapping[Role, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Weights:
        """Read `ads=2,web=0.5`; raises InvalidRequest if it is not that, or a weight is illegal."""
        weights: dict[Role, int] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.rpartition("="))
            if not equals:
                raise InvalidRequest(f"{part!r} is not ROLE=WEIGHT (example: ads=2,web=0.5)")
            role = check_role(name)
            weight = parse_weight(f"the weight of {role}", value)
            if role in weights:
                raise InvalidRequest(f"the weight of {role} is given twice")
            weights[role] = weight
        return cls(weights)

    def settings(self) -> dict[Role, RoleSettings]:
        """Return the settings of these roles."""
        return {role: RoleSettings(weight) for role, weight in self.by_role.items()}

    def __str__(self) -> str:
        return ",".join(f"{role}={format_milli(weight)}" for role, weight in self.by_role.items())
