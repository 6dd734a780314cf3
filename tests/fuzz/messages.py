"""Messages of any type, made from its descriptor.

Rule: a command that an agent may run does nothing. `HARMLESS` replaces the generator of its
message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from croupier.v1 import task_pb2
from tests.fuzz.values import Values

# Messages inside each other; deeper ones stay empty.
DEEPEST: Final = 7
# Elements of all lists of one message.
MOST_ELEMENTS: Final = 300

_ARGUMENTS: Final = (("true",), ("sleep", "0.01"), ("/bin/true", "--", "é\n"), ("no-such-program",))
_SHELL: Final = ("true", "exit 3", "sleep 0.01")
_SKIPPED: Final = 0.35


class Messages:
    """A source of messages."""

    def __init__(self, rng: random.Random, values: Values) -> None:
        self._rng, self._values = rng, values
        self._left = 0

    def message(self, kind: Descriptor) -> Message:
        """Return a message of this type, with any subset of its fields."""
        self._left = MOST_ELEMENTS
        return self._make(kind, 0)

    def filled(self, kind: Descriptor) -> Message:
        """Return a message with one element in each field, and one member of each oneof."""
        self._left = MOST_ELEMENTS
        return self._make(kind, 0, skipped=0.0)

    def _make(self, kind: Descriptor, depth: int, skipped: float = _SKIPPED) -> Message:
        special = HARMLESS.get(kind.full_name)
        if special is not None:
            return special(self._rng)
        made = GetMessageClass(kind)()
        chosen = {each.name: self._rng.choice(each.fields) for each in kind.oneofs}
        for field in kind.fields:
            group = field.containing_oneof
            if group is not None and len(group.fields) > 1:
                # An empty oneof is rare: honest peers send none.
                is_left_out = field is not chosen[group.name] or self._rng.random() < 0.03
            else:
                is_left_out = self._rng.random() < skipped
            if not is_left_out and self._left > 0:
                self._fill(made, field, depth, skipped)
        return made

    def _fill(self, made: Message, field: Field, depth: int, skipped: float) -> None:
        self._left -= 1
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._fill_map(made, field)
        elif field.message_type is not None and depth >= DEEPEST:
            return
        elif field.is_repeated:
            target = getattr(made, field.name)
            for _ in range(self._count() if skipped else 1):
                target.append(self._element(field, depth, skipped))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(self._element(field, depth, skipped))
        else:
            setattr(made, field.name, self._values.value(field))

    def _fill_map(self, made: Message, field: Field) -> None:
        assert field.message_type is not None
        key, value = field.message_type.fields
        target = getattr(made, field.name)
        for _ in range(self._count()):
            name = self._values.value(key)
            if value.message_type is None:
                target[name] = self._values.value(value)
            else:
                target[name].CopyFrom(self._make(value.message_type, DEEPEST))

    def _element(self, field: Field, depth: int, skipped: float) -> object:
        if field.message_type is not None:
            return self._make(field.message_type, depth + 1, skipped)
        return self._values.value(field)

    def _count(self) -> int:
        chance = self._rng.random()
        if chance < 0.98:
            count = self._rng.choice((0, 1, 1, 1, 2, 3))
        else:
            count = self._rng.choice((17, 65, 129, MOST_ELEMENTS))
        count = min(count, max(self._left, 0))
        self._left -= count
        return count


def _command(rng: random.Random) -> Message:
    if rng.random() < 0.8:
        command = task_pb2.Command(argv=rng.choice(_ARGUMENTS))
    else:
        command = task_pb2.Command(shell=rng.choice(_SHELL))
    if rng.random() < 0.3:
        command.environment[rng.choice(("A", "", "A=B", "\0", "é", "LC_ALL"))] = "x"
    if rng.random() < 0.05:
        command.user = rng.choice(("nobody", "no-such-user", "-1", "é", "\0"))
    return command


HARMLESS: Final[dict[str, Callable[[random.Random], Message]]] = {
    task_pb2.Command.DESCRIPTOR.full_name: _command
}
