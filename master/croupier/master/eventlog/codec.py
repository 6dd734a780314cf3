"""Lines of an event log as bytes, and back.

Each line ends with the CRC32 of its preceding bytes: `..., "crc": "XXXXXXXX"}`. In the first line
of a file the CRC is inside the head, so that any release finds the number of the format.

Of a legal command only the size, the user and the names of its secrets are written: decisions
depend on nothing else of it, and commands and environments may hold secrets. It is read as a legal
command of that size.

Names are those of Python, or those in `NAMES`. A name in a log never changes: a class, field or
enum member that is renamed in Python gets an entry there; `tests/upgrade/tags.txt` lists all names.
The digest of decisions is computed over the same names, in the order of the fields.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any, Final, get_args
from zlib import crc32

from croupier.master.core.access_records import TokenKind
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.eventlog.lines import FORMAT, LOGGED, Head, Known, Line, LogEntry, Outcome
from croupier.model.access import AccessPolicy, Action
from croupier.model.codec import Codec, Decode, Encode, Form, Undecodable, error_name
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.secrets import MAX_SEALED, WITHHELD, SealedValue, check_secret_names
from croupier.model.task import Command
from croupier.model.task_checks import MAX_COMMAND_BYTES, MAX_ENVIRONMENT_BYTES, check_command

NAMES: Final = {
    "Head": "head",
    "KnownRole": "role",
    "KnownAgent": "agent",
    "KnownFramework": "framework",
    "KnownOffer": "offer",
    "KnownTask": "task",
    "Received": "Heard",
    "MalformedTask.unit_id": "group_id",
    "Head.digest": "decided",
    "Settings.used_task_ids": "spent_ids",
    "Settings.removed_frameworks": "spent_frameworks",
    "AgentRecord.is_authenticated": "authenticated",
    "FrameworkRecord.is_unrecorded": "is_stranger",
    "FrameworkRecord.earlier_clients": "former",
    "TaskRecord.master_status": "told",
    "TaskRecord.is_acknowledged": "done",
    **{f"Action.{each.name}": each.value for each in Action},
    **{f"TokenKind.{each.name}": each.value for each in TokenKind},
}

# Answers to operators. The digest holds only the kind of an answer.
_ANSWERS: Final[dict[type, str]] = {
    AgentStatus: "Agent",
    TaskSnapshot: "Task",
    AccessPolicy: "Policy",
}

_LINES: Final = {cls: NAMES[cls.__name__] for cls in (Head, *get_args(Known))}
_ANY: Final = reduce(or_, LOGGED)
# Longer than any master has run; whole numbers in JSON may be of any size.
_LONGEST_S = 1e300
_CRC: Final = "crc"
# The attributes of an `Entry`, by the members of its line.
_ENTRY: Final = {"at": "at", "event": "event", "did": "outcomes", "decided": "digest"}


def answer_tag(result: object) -> str:
    """Return the kind of an operator's answer; with its text if it is an error."""
    if isinstance(result, CroupierError):
        return f"{error_name(result)}: {result}"
    return _ANSWERS.get(type(result), type(result).__name__)


def _size_of_command(command: Command) -> Any:
    """Write size, secrets' names and user of a legal command, and an illegal command in full."""
    illegal = _without_command(command)
    if illegal is not None:
        return illegal
    size = [command.size, *command.secrets] if command.secrets else command.size
    return {"size": size, "user": command.user} if command.user else size


def _without_command(command: Command) -> Any:
    """Leave out a legal command, and write an illegal command in full."""
    try:
        check_command(command)
    except InvalidRequest:
        return _EXACT.encoder(Command)(command)
    return None


def _decode_command(document: Any) -> Command:
    size, user = document, ""
    if type(size) is dict and size.keys() == {"size", "user"}:
        size, user = size["size"], _text(size["user"])
    if type(size) is int:
        return _stand_in(size, user=user)
    if type(size) is list:
        return _stand_in(_whole(size[0] if size else None), _secret_names(size[1:]), user)
    command: Command = _EXACT.decoder(Command)(document)
    return command


@lru_cache(maxsize=64)
def _stand_in(size: int, names: tuple[str, ...] = (), user: str = "") -> Command:
    """Return a legal command of that size and user, with secrets of these names."""
    check_secret_names(names)
    rest = size - sum(map(len, names))
    sealed = min(MAX_SEALED, max(0, rest - 1)) if names else 0
    rest -= sealed
    if not 1 <= rest <= MAX_COMMAND_BYTES + MAX_ENVIRONMENT_BYTES:
        raise Undecodable("not the size of a legal command")
    variable = max(0, rest - MAX_COMMAND_BYTES + len(user.encode(errors="replace")))
    environment = {"-": "-" * (variable - 1)} if variable else {}
    secrets = dict.fromkeys(names, WITHHELD)
    if names:
        secrets[names[0]] = SealedValue("", "-" * sealed)
    words = ("-" * (rest - variable),)
    return Command(words, environment=environment, user=user, secrets=secrets)


_EXACT: Final = Codec(NAMES)
_whole: Final = _EXACT.decoder(int)
_secret_names: Final = _EXACT.decoder(tuple[str, ...])
_text: Final = _EXACT.decoder(str)
CODEC: Final = Codec(NAMES, {Command: Form(_size_of_command, _decode_command)})
# Digests leave out sizes.
DIGESTED: Final = Codec(NAMES, {Command: Form(_without_command, _decode_command)})


@cache
def event_encoder() -> Encode:
    """Return the encoder of the events of `LOGGED`; raises TypeError if one cannot be written."""
    return CODEC.encoder(_ANY)


@cache
def _decoders() -> dict[str, Decode]:
    entry = {"at": float, "event": _ANY, "did": tuple[Outcome, ...], "decided": str}
    kinds = {name: cls for cls, name in _LINES.items()} | entry
    return {name: CODEC.decoder(kind) for name, kind in kinds.items()}


def write_line(line: Head | Known) -> bytes:
    """Return a line that is not an event, with its line feed."""
    body = as_json({_LINES[type(line)]: CODEC.encoder(type(line))(line)})
    return _sealed(body, b"}}" if isinstance(line, Head) else b"}")


def write_event(entry: dict[str, Any]) -> bytes:
    """Return the line of an event, with its line feed, from the encoded members of `_ENTRY`."""
    return _sealed(as_json(entry), b"}")


def _sealed(body: bytes, end: bytes) -> bytes:
    """Add the CRC as the last member of the object that `end` closes."""
    covered = body.removesuffix(end)
    return b'%s,"%s":"%08x"%s\n' % (covered, _CRC.encode(), crc32(covered), end)


def as_json(document: Any) -> bytes:
    """Return `document` as compact JSON: the same bytes for the same value."""
    return _ENCODER.encode(document).encode()


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def read_line(text: bytes) -> Line:
    """Return the value of a line; raises Undecodable if it is damaged, or of another format."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Undecodable("not a line of JSON") from None
    if type(document) is not dict:
        raise Undecodable("not an object")
    if "head" in document:
        _check_format(document["head"])
    _check_crc(text, document.get("head", document))
    return _decoded(document)


def _check_crc(text: bytes, holder: dict[str, Any]) -> None:
    """Check the CRC of a line, and remove it from the object that holds it."""
    if _CRC not in holder:
        raise Undecodable("damaged: its checksum is missing")
    covered = text.rpartition(b',"%s":' % _CRC.encode())[0]
    if holder.pop(_CRC) != f"{crc32(covered):08x}":
        raise Undecodable("damaged: its checksum does not match")


def _decoded(document: dict[str, Any]) -> Line:
    decoders = _decoders()
    if "event" in document:
        if not {"at", "event"} <= document.keys() <= _ENTRY.keys():
            raise Undecodable("an event has `at`, `did` and `decided`, and nothing else")
        entry = LogEntry(**{_ENTRY[name]: decoders[name](each) for name, each in document.items()})
        if not abs(entry.at) < _LONGEST_S:
            raise Undecodable("an event without a time")
        return entry
    if len(document) != 1 or (name := next(iter(document))) not in _LINES.values():
        raise Undecodable("neither a head, nor an event, nor part of the state")
    line: Line = decoders[name](document[name])
    return line


def _check_format(head: Any) -> None:
    """Refuse an unknown format by its number, before any other error is found."""
    number = head.get("format") if type(head) is dict else None
    if type(number) is int and number > FORMAT:
        raise Undecodable(
            f"a log of format {str(number)[:20]}; this program reads formats up to {FORMAT}:"
            " use the newer release that wrote it"
        )
    if number != FORMAT:
        raise Undecodable(f"a log of format {str(number)[:20]}; there is no such format")


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
