"""Fields of JSON objects of Mesos, read and written by the rules of Mesos.

In what is read, null is unset, and so is a value of another kind than the field's. An unknown field
is ignored. A value where a list is wanted is a list of one. A number or a boolean is accepted for a
text. Older clients call an agent a slave.

What is written is a stream of records (RecordIO): compact JSON in one line, after its length.
Clients split the stream at line breaks.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterable
from typing import Any, Final

from croupier.model.errors import InvalidRequest

Json = dict[str, Any]

# The version of Mesos whose API this is. Clients read it as numbers.
VERSION: Final = "1.11.0"
UUID_BYTES: Final = 16
NANOSECONDS_PER_MS: Final = 1_000_000
_SLAVE: Final = "slave_id"


def parse_object(data: bytes) -> Json:
    """Return the JSON object in `data`; raises InvalidRequest if there is none."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest(f"Failed to parse body into JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequest("Failed to parse body into JSON: an object is expected")
    return found


def text(of: Json, name: str, default: str = "") -> str:
    """Return a text."""
    found = of.get(name)
    if isinstance(found, str):
        # A lone surrogate has no place in any message.
        return found if found.isascii() else found.encode(errors="replace").decode()
    if isinstance(found, bool):
        return str(found).lower()
    return str(found) if isinstance(found, int | float) else default


def number(of: Json, name: str, default: float = 0.0) -> float:
    """Return a number; Mesos also writes "Infinity" for one."""
    found = of.get(name)
    if isinstance(found, str):
        try:
            found = float(found)
        except ValueError:
            return default
    if isinstance(found, bool) or not isinstance(found, int | float):
        return default
    try:
        found = float(found)
    except OverflowError:
        return math.inf
    return default if math.isnan(found) else found


def integer(of: Json, name: str, default: int = 0) -> int:
    """Return a whole number, as precise as it came; a fraction is cut off."""
    found = of.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    found = number(of, name, default)
    return int(found) if math.isfinite(found) else default


def flag(of: Json, name: str, *, default: bool = False) -> bool:
    """Return a boolean."""
    found = of.get(name)
    return found if isinstance(found, bool) else default


def entry(of: Json, *path: str) -> Json:
    """Return the object at a path of names; an empty one if there is none."""
    for name in path:
        found = of.get(name)
        of = found if isinstance(found, dict) else {}
    return of


def items(of: Json, name: str) -> list[Any]:
    """Return a list; one of one for a single value."""
    found = of.get(name)
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def entries(of: Json, *path: str) -> list[Json]:
    """Return the objects in the list at a path of names."""
    *outer, name = path
    return [each for each in items(entry(of, *outer), name) if isinstance(each, dict)]


def texts(of: Json, name: str) -> list[str]:
    """Return the texts in a list."""
    return [text({"": each}, "") for each in items(of, name)]


def id_of(of: Json, name: str) -> str:
    """Return the value of an id, such as that in `{"task_id": {"value": "a"}}`."""
    found = of.get(name)
    if found is None and name == "agent_id":
        found = of.get(_SLAVE)
    return text(found, "value") if isinstance(found, dict) else ""


def ids_of(of: Json, name: str) -> list[str]:
    """Return the values of the ids in a list."""
    return [text(each, "value") for each in entries(of, name)]


def data_of(of: Json, name: str) -> bytes:
    """Return bytes, which are base64 in JSON; raises InvalidRequest if they are not."""
    try:
        return base64.b64decode(text(of, name), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{name} is not base64") from None


def uuid_of(of: Json) -> bytes:
    """Return the uuid of an update; raises InvalidRequest if it does not have 16 bytes."""
    found = data_of(of, "uuid")
    if len(found) != UUID_BYTES:
        raise InvalidRequest(f"uuid does not have {UUID_BYTES} bytes")
    return found


def labels_of(of: Json) -> tuple[tuple[str, str], ...]:
    """Return the labels of a task or a status."""
    listed = entries(of, "labels", "labels")
    return tuple((text(each, "key"), text(each, "value")) for each in listed)


def encoded(value: Json) -> bytes:
    """Return an object as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def record(value: Json) -> bytes:
    """Return the record of an object."""
    data = encoded(value)
    return b"%d\n%b" % (len(data), data)


def typed(kind: str, **fields: Any) -> Json:
    """Return an event or an answer: its type, and the fields of that type."""
    return {"type": kind, kind.lower(): fields} if fields else {"type": kind}


def made_id(value: str) -> Json:
    """Return an id of Mesos."""
    return {"value": value}


def made_data(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode()


def made_labels(labels: Iterable[tuple[str, str]]) -> Json:
    """Return labels of a task or a status."""
    return {"labels": [{"key": key, "value": value} for key, value in labels]}


def made_scalar(name: str, thousandths: int) -> Json:
    """Return an amount of a resource, or a number that is an attribute."""
    return {"name": name, "type": "SCALAR", "scalar": {"value": unmilli(thousandths)}}


def milli(amount: float) -> int:
    """Return thousandths of a scalar, rounded as Mesos does.

    Raises InvalidRequest if it is no number, or positive and below a thousandth.
    """
    if not math.isfinite(amount) or abs(amount) > 2**52:
        raise InvalidRequest("a scalar is not a number")
    rounded = math.floor(amount * 1000 + 0.5)
    if amount and not rounded:
        raise InvalidRequest(f"{amount:g} is less than a thousandth")
    return rounded


def unmilli(thousandths: int) -> float:
    """Return a scalar as Mesos writes it."""
    return thousandths / 1000
