"""Attributes of agents, and constraints on them. Attributes are matched, never allocated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, Final

from croupier.model.errors import InvalidRequest
from croupier.model.isolation import NO_FEATURES, Features, feature_names, known_features
from croupier.model.ranges import Ranges, format_ranges, parse_ranges
from croupier.model.scalar import format_milli, parse_pairs, parse_scalar

MAX_PATTERN = 1024
# Instructions, as RE2 counts them: a match takes at most that many steps for each character, some
# 5 ns each. A list of thirty host names has about 1,000.
MAX_PROGRAM = 1000
# Bytes for a pattern's program and for the states that RE2 remembers of earlier matches.
# Mesos' 4 KiB refuses every list of host names.
MAX_MEMORY = 64 * 1024
# A text, thousandths of a number, or ranges.
AttributeValue = str | int | Ranges
Attributes = Mapping[str, AttributeValue]
# Facts that are no attributes, but that constraints can name.
HOSTNAME = "hostname"
ISOLATION = "isolation"
AGENT_ID = "agent_id"
MAX_TEXT = 1024
MAX_ATTRIBUTES = 64
MAX_CONSTRAINTS = 100
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}\Z", re.ASCII)
# Around each feature in the pattern of `enforces`: others may precede and follow it.
_BEFORE, _AFTER = "(.*,)?", "(,.*)?"
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,3})?\Z", re.ASCII)


class Pattern:
    """A compiled regular expression in RE2's syntax, as from a peer. Immutable.

    RE2 never backtracks: it matches in linear time and bounded memory, so no pattern can block the
    process that matches it. In return it has no back-references and no look-around. It is imported
    with the first pattern: a framework without patterns runs without it.

    Attributes:
        text: the source of the pattern.
        size: number of instructions, the cost of a match for each character.
    """

    __slots__ = ("_compiled", "size", "text")

    def __init__(self, text: str) -> None:
        """Compile `text`.

        Raises InvalidRequest if it is malformed, over 1,024 bytes, or too complex; or if RE2 is not
        installed.
        """
        self.text = text
        self._compiled = _compile(_encoded(text))
        self.size: int = self._compiled.programsize
        if self.size > MAX_PROGRAM:
            raise InvalidRequest(
                f"the pattern {text[:80]!r} is too complex:"
                f" {self.size} instructions, at most {MAX_PROGRAM} are allowed"
            )

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole `text`. O(size x length)."""
        return self._compiled.fullmatch(text.encode(errors="replace")) is not None


def _encoded(text: str) -> bytes:
    # Checked before the text is encoded, so that a huge text is not copied.
    if len(text) > MAX_PATTERN:
        raise InvalidRequest(f"a pattern of {len(text)} characters; at most {MAX_PATTERN} bytes")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the pattern is not valid text") from None
    if len(encoded) > MAX_PATTERN:
        raise InvalidRequest(f"a pattern of {len(encoded)} bytes; at most {MAX_PATTERN}")
    return encoded


def _compile(pattern: bytes) -> Any:
    try:
        import re2
    except ImportError:
        raise InvalidRequest(
            "regular expressions need RE2, which is not installed: pip install google-re2"
        ) from None
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else "it is malformed"
        reason = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        shown = pattern[:80].decode(errors="replace")
        raise InvalidRequest(f"the pattern {shown!r} cannot be used: {reason}") from None


class Operator(Enum):
    """The condition of a constraint on an attribute."""

    EXISTS = "exists"
    NOT_EXISTS = "not exists"
    EQUALS = "equals"
    NOT_EQUALS = "not equals"
    MATCHES = "matches"
    NOT_MATCHES = "not matches"


_EXAMPLES: Final = "examples: 'rack equals r1', 'hostname matches node-.*', 'gpu exists'"
_WITHOUT_VALUE: Final = (Operator.EXISTS, Operator.NOT_EXISTS)
# The longer names first: `not equals` before `equals`.
_OPERATORS: Final = sorted(Operator, key=lambda operator: -len(operator.value))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A test on one attribute of an agent; `hostname` and `isolation` are among them.

    `value` is compared with the attribute's text form. For MATCHES and NOT_MATCHES it is a
    regular expression in RE2's syntax, which must match all of that text, as in Mesos:
    `r1` does not match `r12`, and `.*` around it finds it anywhere. An agent without the
    attribute fails EQUALS and MATCHES, and passes NOT_EQUALS and NOT_MATCHES.

    Attributes:
        pattern: the regular expression, compiled; None for other operators.
    """

    attribute: str
    operator: Operator
    value: str = ""
    pattern: Pattern | None = field(init=False, default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_attribute_name(self.attribute)
        if len(self.value) > MAX_TEXT:
            raise InvalidRequest(f"constraint on {self.attribute}: value is too long")
        if self.operator in (Operator.MATCHES, Operator.NOT_MATCHES):
            object.__setattr__(self, "pattern", _compiled(self.attribute, self.value))

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Return whether an agent with these attributes, as text, passes."""
        match self.operator:
            case Operator.EXISTS:
                return self.attribute in facts
            case Operator.NOT_EXISTS:
                return self.attribute not in facts
            case Operator.EQUALS:
                return facts.get(self.attribute) == self.value
            case Operator.NOT_EQUALS:
                return facts.get(self.attribute) != self.value
            case Operator.MATCHES:
                return self._matches(facts)
            case Operator.NOT_MATCHES:
                return not self._matches(facts)

    def steps(self, facts: Mapping[str, str]) -> int:
        """Return the most steps, of some 5 ns each, that a match of these attributes takes."""
        text = facts.get(self.attribute, "")
        return 0 if self.pattern is None else self.pattern.size * len(text)

    def _matches(self, facts: Mapping[str, str]) -> bool:
        assert self.pattern is not None
        text = facts.get(self.attribute)
        return text is not None and self.pattern.matches(text)

    def __str__(self) -> str:
        names = _required_features(self)
        if names:
            return f"{ISOLATION} has {', '.join(names)}"
        return f"{self.attribute} {self.operator.value} {self.value}".rstrip()


def equals(attribute: str, value: str) -> Constraint:
    """Accept only agents whose `attribute` is `value`."""
    return Constraint(attribute, Operator.EQUALS, value)


def not_equals(attribute: str, value: str) -> Constraint:
    """Reject agents whose `attribute` is `value`."""
    return Constraint(attribute, Operator.NOT_EQUALS, value)


def bound_to(constraints: Iterable[Constraint]) -> str:
    """Return the id of the only agent that can pass the constraints; empty if none is named."""
    bound = (c for c in constraints if (c.attribute, c.operator) == (AGENT_ID, Operator.EQUALS))
    return next((each.value for each in bound), "")


def matches(attribute: str, pattern: str) -> Constraint:
    """Accept only agents whose whole `attribute` the regular expression matches.

    Raises InvalidRequest if the pattern is not in RE2's syntax, is over 1,024 bytes, or compiles to
    too many instructions.
    """
    return Constraint(attribute, Operator.MATCHES, pattern)


def not_matches(attribute: str, pattern: str) -> Constraint:
    """Reject agents whose whole `attribute` the pattern matches; raises as `matches`."""
    return Constraint(attribute, Operator.NOT_MATCHES, pattern)


def exists(attribute: str) -> Constraint:
    """Accept only agents that have `attribute`."""
    return Constraint(attribute, Operator.EXISTS)


def not_exists(attribute: str) -> Constraint:
    """Accept only agents that do not have `attribute`."""
    return Constraint(attribute, Operator.NOT_EXISTS)


def enforces(*features: str) -> Constraint:
    """Accept only agents that can enforce all of these features, such as `memory` or `images`.

    Raises InvalidRequest if there are none, or one is unknown.
    """
    known = feature_names(known_features(features))
    if not known or len(known) < len(set(features)):
        raise InvalidRequest(f"{', '.join(features)[:80]!r} are not features of isolation")
    # The attribute is the sorted list of the agent's features.
    return matches(ISOLATION, _BEFORE + f",{_BEFORE}".join(known) + _AFTER)


def parse_constraint(text: str) -> Constraint:
    """Read `ATTRIBUTE OPERATOR VALUE`, or `isolation has FEATURE, ...`.

    Raises InvalidRequest if it has another form.
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
        f"{text[:80]!r} is not ATTRIBUTE OPERATOR VALUE ({_EXAMPLES}); operators are"
        f" {', '.join(operator.value for operator in Operator)}"
    )


def check_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return `constraints` as a tuple; raises InvalidRequest at the first one over 100."""
    kept = tuple(islice(constraints, MAX_CONSTRAINTS + 1))
    if len(kept) > MAX_CONSTRAINTS:
        raise InvalidRequest(f"more than {MAX_CONSTRAINTS} constraints")
    return kept


def check_attribute_name(name: str) -> str:
    """Return `name` if it can name an attribute; raises InvalidRequest if it cannot."""
    if not _NAME.match(name):
        raise InvalidRequest(f"{name[:80]!r} is not the name of an attribute")
    return name


def parse_attributes(text: str) -> dict[str, AttributeValue]:
    """Read `rack:r1;zone:a;cores:8;slots:[1-4]`.

    A number in another form than `str` writes is text: `version:1.10`. Raises InvalidRequest if
    `text` has another form.
    """
    attributes: dict[str, AttributeValue] = {}
    for name, value in parse_pairs(text, "NAME:VALUE (example: rack:r1;zone:a)").items():
        if len(value) > MAX_TEXT:
            raise InvalidRequest(f"attribute {name[:80]}: value is too long")
        is_ranges = value.startswith("[")
        attributes[check_attribute_name(name)] = (
            parse_ranges(value) if is_ranges else _number_or_text(name, value)
        )
    return attributes


def _required_features(constraint: Constraint) -> list[str]:
    """Return the features that a constraint by `enforces` names; empty for any other."""
    value = constraint.value
    if constraint.attribute != ISOLATION or constraint.operator is not Operator.MATCHES:
        return []
    if not (value.startswith(_BEFORE) and value.endswith(_AFTER)):
        return []
    names = value.removeprefix(_BEFORE).removesuffix(_AFTER).split(f",{_BEFORE}")
    return names if len(known_features(names)) == len(names) else []


def _compiled(attribute: str, pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except InvalidRequest as error:
        raise InvalidRequest(f"constraint on {attribute}: {error}") from None


def _number_or_text(name: str, value: str) -> AttributeValue:
    if not _NUMBER.match(value):
        return value
    milli = parse_scalar(name, value)
    return milli if format_milli(milli) == value else value


def attribute_text(value: AttributeValue) -> str:
    """Return the text form of an attribute's value, which constraints compare with."""
    if isinstance(value, str):
        return value
    return format_milli(value) if isinstance(value, int) else format_ranges(value)


def facts_of(
    hostname: str, attributes: Attributes, features: Features = NO_FEATURES, agent_id: str = ""
) -> dict[str, str]:
    """Return an agent's attributes as text, with the facts beside them, for constraints.

    `isolation` is the sorted list of its features, joined by commas; an agent without any has
    none. Attributes named `hostname`, `isolation` or `agent_id` do not count.
    """
    facts = {name: attribute_text(value) for name, value in attributes.items()}
    facts.pop(ISOLATION, None)
    if features:
        facts[ISOLATION] = ",".join(feature_names(features))
    facts[HOSTNAME] = hostname
    if agent_id:
        facts[AGENT_ID] = agent_id
    return facts
