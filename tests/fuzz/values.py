"""Values of fields: plausible ones, boundaries, and values that no honest peer sends."""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

# Values of one name that are remembered.
MOST_WORDS: Final = 200

_PLAIN: Final = (
    "a", "t1", "f1", "agent-1", "host0", "*", "ads", "ads/prod", "ads/test", "cpus", "mem", "disk",
    "gpus", "ports", "rack", "r1", "zone", "nobody", "127.0.0.1:5081", "boot", "0.1.0", "true",
    "0123abcd", "client/fuzz", "agent/fuzz-agent", "group:viewer", "viewer", "admin", "register",
    "view", "kill", "role:fuzz", "role:**", "agent:*", "user:nobody", "cluster", "fuzz", "fuzz/a",
    "stdout",
)  # fmt: skip
_ODD: Final = (
    "", " ", ".", "..", "/", "//", "a/", "/a", "../../etc/passwd", "a b", "a\nb", "a\r\nb", "\0",
    "a\0b", "\x1b[2J", "\x7f", "é", "ß" * 9, "名前", "🂡", "\u202e", "\ufeff", "a\u0301", "%s%n",
    "%2e%2e", "-", "--help", "-1", "1e999", "nan", "inf", "null", "true", "0", "**", "?", "[",
    "(", "(.*a){20}b", "a" * 64, "a" * 65, "a" * 256, "a" * 1024, "a/" * 33, "/".join("a" * 40),
    "localhost:1", "host:99999", "[::1]:1", "unix:/x", "{}", "'", '"', "<script>", "1" * 400,
)  # fmt: skip
_SMALL: Final = (0, 1, 2, 3, 10, 100, 500, 1000, 1500, 4000, 65_536, 1_000_000)
_BITS: Final = {
    Field.CPPTYPE_INT32: (True, 32),
    Field.CPPTYPE_INT64: (True, 64),
    Field.CPPTYPE_UINT32: (False, 32),
    Field.CPPTYPE_UINT64: (False, 64),
}
_FLOATS: Final = (0.0, -0.0, 1.5, -1.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"))


class Words:
    """Ids and names that peers have sent, by the name of their field."""

    def __init__(self) -> None:
        self._known: dict[str, deque[str]] = {}

    def learn(self, message: Message) -> None:
        """Remember the strings of a message, so that requests can name what exists."""
        for field, value in message.ListFields():
            if field.message_type is not None:
                if not field.message_type.GetOptions().map_entry:
                    for each in value if field.is_repeated else [value]:
                        self.learn(each)
            elif field.cpp_type == Field.CPPTYPE_STRING and field.type != Field.TYPE_BYTES:
                for each in value if field.is_repeated else [value]:
                    self.add(field.name, each)

    def add(self, name: str, value: str) -> None:
        """Remember a value of the field `name`."""
        if 0 < len(value) <= 64:
            known = self._known.setdefault(name.removesuffix("s"), deque(maxlen=MOST_WORDS))
            if value not in known:
                known.append(value)

    def pick(self, name: str, rng: random.Random) -> str | None:
        """Return a value that is known under a name; None if there is none."""
        known = self._known.get(name.removesuffix("s"))
        return rng.choice(known) if known else None


class Values:
    """Scalars of the types of protobuf fields."""

    def __init__(self, rng: random.Random, words: Words) -> None:
        self.rng = self._rng = rng
        self._words = words

    def known(self, name: str) -> str | None:
        """Return a value that a peer sent under this name; None if there is none."""
        return self._words.pick(name, self._rng)

    def value(self, field: Field) -> object:
        """Return a value for one element of a scalar field."""
        if field.type == Field.TYPE_BYTES:
            return self.octets()
        if field.cpp_type == Field.CPPTYPE_STRING:
            return self.text(field.name)
        if field.cpp_type == Field.CPPTYPE_ENUM:
            return self._number_of(field)
        if field.cpp_type == Field.CPPTYPE_BOOL:
            return self._rng.random() < 0.5
        if field.cpp_type in _BITS:
            return self.whole(*_BITS[field.cpp_type])
        return self._rng.choice(_FLOATS)

    def text(self, name: str) -> str:
        """Return a text: mostly one that exists under this name, or a plausible one."""
        chance = self._rng.random()
        if chance < 0.55 and (known := self._words.pick(name, self._rng)) is not None:
            return known
        if chance < 0.8:
            return self._rng.choice(_PLAIN)
        if chance < 0.997:
            return self._rng.choice(_ODD)
        return self._rng.choice(("x", "é", "🂡", "\0")) * self._rng.choice((4_097, 70_000, 300_000))

    def octets(self) -> bytes:
        """Return some bytes."""
        return self._rng.randbytes(self._rng.choice((0, 1, 15, 16, 17, 32, 32, 32, 1000)))

    def whole(self, is_signed: bool, bits: int) -> int:
        """Return a whole number within the bounds of its type."""
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        chance = self._rng.random()
        if chance < 0.6:
            return self._rng.choice(_SMALL)
        if chance < 0.8:
            near = self._rng.choice((least, most, most // 1000, 1 << 31, 1 << 53, 1 << 63))
            return min(max(near + self._rng.choice((-1, 0, 1)), least), most)
        return self._rng.randint(least, most) >> self._rng.randrange(bits)

    def _number_of(self, field: Field) -> int:
        assert field.enum_type is not None
        if self._rng.random() < 0.85:
            return int(self._rng.choice(field.enum_type.values).number)
        return self._rng.choice((-1, -(1 << 31), 99, 1000, (1 << 31) - 1))
