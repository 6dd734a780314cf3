"""Constraints as text, such as `rack equals r1`: the form that `str` of a constraint writes."""

from __future__ import annotations

from typing import Final

from croupier.model.attributes import ISOLATION, Operator
from croupier.model.errors import InvalidRequest
from croupier.sdk import Constraint, enforces

EXAMPLES: Final = "examples: 'rack equals r1', 'hostname matches node-.*', 'gpu exists'"
_WITHOUT_VALUE: Final = (Operator.EXISTS, Operator.NOT_EXISTS)
# The longer names first: `not equals` before `equals`.
_OPERATORS: Final = sorted(Operator, key=lambda operator: -len(operator.value))


def parse_constraint(text: str) -> Constraint:
    """Read `ATTRIBUTE OPERATOR VALUE`, or `isolation has FEATURE, ...`.

    Raises:
        InvalidRequest: if it has another form.
    """
    attribute, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if attribute == ISOLATION and rest.startswith("has "):
        return enforces(*(name.strip() for name in rest.removeprefix("has ").split(",")))
    for operator in _OPERATORS:
        value = rest.removeprefix(operator.value)
        if not rest.startswith(operator.value) or value[:1] not in ("", " "):
            continue
        if bool(value.strip()) == (operator in _WITHOUT_VALUE):
            break
        return Constraint(attribute, operator, value.strip())
    raise InvalidRequest(
        f"{text[:80]!r} is not ATTRIBUTE OPERATOR VALUE ({EXAMPLES}); operators are"
        f" {', '.join(operator.value for operator in Operator)}"
    )
