"""Changes of the settings: other weights, quotas, or another policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.master.allocator import policies
from croupier.master.core.roles import RoleChange, check_settings
from croupier.master.weights import Weights
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role, check_role
from croupier.model.roles import RoleSettings, format_amounts, parse_amounts
from croupier.model.scalar import format_milli

# Amounts in thousandths: of a `guarantee`, a `limit` or both; others stay as recorded.
Quota = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Change:
    """Other weights, quotas or another policy; `policy` None keeps the recorded one."""

    weights: Mapping[Role, int] = field(default_factory=dict)
    quotas: Mapping[Role, Quota] = field(default_factory=dict)
    policy: str | None = None

    @classmethod
    def parse(cls, weights: Sequence[str], quotas: Sequence[str], policy: str | None) -> Change:
        """Read `ads=2,web=0.5`, and `ads=guarantee:cpus:4;mem:8GB,limit:cpus:8`.

        Raises InvalidRequest if a text has another form.
        """
        if policy is not None:
            policies.make(policy)
        return cls(Weights.parse(",".join(weights)).by_role, _quotas(quotas), policy)

    def __bool__(self) -> bool:
        return bool(self.weights or self.quotas or self.policy is not None)

    def __str__(self) -> str:
        parts = [f"{role} weighs {format_milli(each)}" for role, each in self.weights.items()]
        for role, quota in self.quotas.items():
            for name, said in (("guarantee", "guaranteed"), ("limit", "limited to")):
                if name in quota:
                    parts.append(f"{role} is {said} {format_amounts(quota[name]) or 'nothing'}")
        parts += [] if self.policy is None else [f"the policy is {self.policy}"]
        return ", ".join(parts)

    def settings(self, role: Role, settings: RoleSettings) -> RoleSettings:
        """Return the role's settings after the change of `settings`."""
        changed: dict[str, Any] = dict(self.quotas.get(role, {}))
        if role in self.weights:
            changed["weight"] = self.weights[role]
        return replace(settings, **changed)

    def roles(self, roles: Mapping[Role, RoleSettings]) -> dict[Role, RoleSettings]:
        """Return all settings after the change of `roles`; raises InvalidRequest if impossible."""
        named = dict.fromkeys((*roles, *self.weights, *self.quotas))
        changed = {role: self.settings(role, roles.get(role, RoleSettings())) for role in named}
        for role, settings in changed.items():
            try:
                settings.check()
            except InvalidRequest as refusal:
                raise InvalidRequest(f"role {role}: {refusal}") from None
        check_settings(changed)
        return changed

    def over_time(
        self, roles: Mapping[Role, RoleSettings], later: Sequence[tuple[float, Role, RoleSettings]]
    ) -> list[tuple[float, RoleChange]]:
        """Apply the change to `later` updates of `roles`; raises InvalidRequest for conflicts."""
        now = dict(roles)
        changes = []
        for at, role, recorded in later:
            now[role] = settings = self.settings(role, recorded)
            check_settings(now)
            changes.append((at, RoleChange(role, settings)))
        return changes


def _quotas(texts: Sequence[str]) -> dict[Role, Quota]:
    quotas: dict[Role, Quota] = {}
    for text in texts:
        name, equals, parts = text.rpartition("=")
        role = check_role(name.strip()) if equals else Role("")
        if not role:
            raise InvalidRequest(f"{text[:80]!r} is not {_QUOTA}")
        if role in quotas:
            raise InvalidRequest(f"the quota of {role} is given twice")
        quotas[role] = _quota(text, parts)
    return quotas


def _quota(text: str, parts: str) -> Quota:
    given: dict[str, Mapping[str, int]] = {}
    for part in parts.split(","):
        name, colon, amounts = (piece.strip() for piece in part.partition(":"))
        if not colon or name not in ("guarantee", "limit") or name in given:
            raise InvalidRequest(f"{text[:80]!r} is not {_QUOTA}")
        given[name] = {} if amounts == "none" else parse_amounts(amounts)
    return given


_QUOTA = "ROLE=guarantee:AMOUNTS,limit:AMOUNTS (example: 'ads=guarantee:cpus:4;mem:8GB,limit:none')"
