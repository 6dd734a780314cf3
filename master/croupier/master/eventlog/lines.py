"""What the lines of an event log are, as values and as JSON.

    {"head": {...}}                                  the first of each file
    {"role"|"agent"|"framework"|"offer"|"task": {}}  how things stood then; not in a run's first
    {"at": S, "event": {...}, "did": [...], "decided": "..."}

Of a command that is legal only the size is written: decisions depend on nothing else of it, and
commands and their environments may hold secrets. It is read as a legal command of that size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from operator import or_
from typing import Any, Final, get_args

from croupier.master.allocator import Rules
from croupier.master.core.events import Read
from croupier.master.core.records import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.step import Event
from croupier.model.attributes import Attributes
from croupier.model.codec import Codec, Decode, Encode, Form, Undecodable
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import MAX_COMMAND_BYTES, MAX_ENVIRONMENT_BYTES, Command

FORMAT: Final = 1
# Events that are logged: all but those that only look.
LOGGED: Final = tuple(each for each in get_args(Event) if each is not Read)
_ANY: Final = reduce(or_, LOGGED)
# What followed from an event, in short; see `outcome`.
Deed = tuple[str, ...]

# Longer than any master has run; whole numbers of a log may be of any size.
_LONGEST_S = 1e300


@dataclass(frozen=True, slots=True)
class Head:
    """What opens a file.

    Attributes:
        format: of the log.
        version: of the program that wrote it.
        part: which file of the master's run this is, from 1.
        at: seconds on the master's monotonic clock, as for events.
        wall_ms: the same moment, in milliseconds since the epoch.
        events: how many events are in the files before this one.
        decided: the digest of all decisions in those.
        seed: of the policy.
        roles: what the flags set of roles.
        registry: what the master knew from its predecessors; None in all parts but the first.
    """

    format: int
    version: str
    master_id: str
    part: int
    at: float
    wall_ms: int
    events: int
    decided: str
    settings: Settings
    policy: str
    seed: int
    rules: Rules
    roles: dict[Role, RoleSettings] = field(default_factory=dict)
    registry: Registry | None = None


@dataclass(frozen=True, slots=True)
class KnownRole:
    """What is set of a role."""

    role: Role
    settings: RoleSettings


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """An agent whose resources count."""

    agent_id: AgentId
    hostname: str
    total: Resources
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class KnownFramework:
    """A framework that was not removed.

    Attributes:
        session: its stream; 0 while it is not connected.
        suppressed: the roles in which it asked for no offers.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    session: int
    demands: tuple[Demand, ...] = ()
    suppressed: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownOffer:
    """An offer that stood."""

    offer_id: OfferId
    framework_id: FrameworkId
    role: Role
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task that held resources; `since` is when it was launched or found on its agent."""

    framework_id: FrameworkId
    task_id: TaskId
    role: Role
    agent_id: AgentId
    resources: Resources
    since: float


Known = KnownRole | KnownAgent | KnownFramework | KnownOffer | KnownTask


@dataclass(frozen=True, slots=True)
class Entry:
    """An event.

    Attributes:
        at: seconds on the master's monotonic clock.
        did: what followed from it, in short.
        decided: the digest of all decisions up to and with this one; empty if nothing
            followed from the event.
    """

    at: float
    event: Event
    did: tuple[Deed, ...] = ()
    decided: str = ""


Line = Head | Known | Entry

_NAMES: Final[dict[str, type]] = {
    "head": Head,
    "role": KnownRole,
    "agent": KnownAgent,
    "framework": KnownFramework,
    "offer": KnownOffer,
    "task": KnownTask,
}
_NAME_OF: Final = {cls: name for name, cls in _NAMES.items()}


def _size_of_command(command: Command) -> Any:
    """The size of a legal command; an illegal one in full."""
    told = _without_command(command)
    return command.size if told is None else told


def _without_command(command: Command) -> Any:
    """Nothing of a legal command; an illegal one in full."""
    try:
        command.check()
    except InvalidRequest:
        return _EXACT.encoder(Command)(command)
    return None


def _decode_command(told: Any) -> Command:
    if told is None:
        # Written by a release that did not write sizes.
        return _stand_in(1)
    if type(told) is int:
        return _stand_in(told)
    command: Command = _EXACT.decoder(Command)(told)
    return command


@lru_cache(maxsize=64)
def _stand_in(size: int) -> Command:
    """A legal command of that size."""
    if not 1 <= size <= MAX_COMMAND_BYTES + MAX_ENVIRONMENT_BYTES:
        raise Undecodable("not the size of a legal command")
    rest = max(0, size - MAX_COMMAND_BYTES)
    environment = {"-": "-" * (rest - 1)} if rest else {}
    return Command(("-" * (size - rest),), environment=environment)


_EXACT: Final = Codec()
CODEC: Final = Codec({Command: Form(_size_of_command, _decode_command)})
# For digests. They leave out the size, so digests of logs without sizes stay valid.
DIGESTED: Final = Codec({Command: Form(_without_command, _decode_command)})


@cache
def event_encoder() -> Encode:
    """Encodes the events of `LOGGED`.

    Raises:
        TypeError: if one of them has a field that cannot be written.
    """
    return CODEC.encoder(_ANY)


@cache
def _decoders() -> dict[str, Decode]:
    decoders = {name: CODEC.decoder(cls) for name, cls in _NAMES.items()}
    return decoders | {
        "at": CODEC.decoder(float),
        "event": CODEC.decoder(_ANY),
        "did": CODEC.decoder(tuple[Deed, ...]),
        "decided": CODEC.decoder(str),
    }


def write_line(line: Head | Known) -> bytes:
    """A line that is no event, with its end."""
    name = _NAME_OF[type(line)]
    return as_json({name: CODEC.encoder(type(line))(line)}) + b"\n"


def as_json(told: Any) -> bytes:
    """The one way in which something is written: the same bytes for the same value."""
    return _ENCODER.encode(told).encode()


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def read_line(text: bytes) -> Line:
    """The value of a line.

    Raises:
        Undecodable: if it is none that this program writes.
    """
    try:
        told = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Undecodable("not a line of JSON") from None
    if type(told) is not dict:
        raise Undecodable("not an object")
    decoders = _decoders()
    if "event" in told:
        if not {"at", "event"} <= told.keys() <= {"at", "event", "did", "decided"}:
            raise Undecodable("an event has `at`, `did` and `decided`, and nothing else")
        entry = Entry(**{name: decoders[name](each) for name, each in told.items()})
        if not abs(entry.at) < _LONGEST_S:
            raise Undecodable("an event without a time")
        return entry
    if len(told) != 1 or (name := next(iter(told))) not in _NAMES:
        raise Undecodable("neither a head, nor an event, nor what stands between")
    if name == "head":
        _check_format(told[name])
    line: Line = decoders[name](told[name])
    return line


def _check_format(told: Any) -> None:
    """Say what is the matter before anything else is, if the file is of another time."""
    number = told.get("format") if type(told) is dict else None
    if number != FORMAT:
        raise Undecodable(f"a log of format {str(number)[:20]}; this program reads format {FORMAT}")


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
