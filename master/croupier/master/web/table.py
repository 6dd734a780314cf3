"""The table of the HTTP API: each route with its handler, its parameters and its answer.

To add routes: write a module with `ROUTES`, and name it in `routes.py`. OpenAPI's document, the
checks of parameters and bodies, and the errors follow from the table. Queries are read strictly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from multidict import MultiMapping

from croupier.api.times import DURATION, MAX_DURATION
from croupier.master.web.calls import Calls
from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.suggestions import unknown_word
from croupier.v1 import operator_pb2 as pb

MAX_TEXT: Final = 4_096
Read = Callable[[str], Any]

PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query.

    Attributes:
        read: returns its value; raises InvalidRequest.
        default: its value if it is absent.
        is_list: it may be given several times.
        has_commas: commas are part of the values of a list; else they stand between values.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    read: Read = str
    default: Any = ""
    is_list: bool = False
    has_commas: bool = False


def integer(name: str, description: str, least: int, most: int, default: int) -> Parameter:
    """Return a parameter that is a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InvalidRequest(
                f"{name} must be a whole number of {least} or more, not {text[:80]!r}"
            )
        if not least <= int(text) <= most:
            raise InvalidRequest(f"{name} must be {least} to {most}, not {text}")
        return int(text)

    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return Parameter(name, description, schema, read, default)


def flag(name: str, description: str) -> Parameter:
    """Return a parameter that is `1` or `true`, or `0` or `false`; absent is false."""
    words = {"1": True, "true": True, "0": False, "false": False}

    def read(text: str) -> bool:
        if text not in words:
            raise InvalidRequest(f"{name} must be one of {', '.join(words)}, not {text[:80]!r}")
        return words[text]

    return Parameter(name, description, {"enum": list(words)}, read, False)


# About 300 years: longer ones are equal to it.
_MAX_MS: Final = 10**13


def read_duration(text: str) -> int:
    """Return a duration in milliseconds; raises InvalidRequest if it is not one."""
    if len(text) > MAX_DURATION:
        raise InvalidRequest(f"{text[:80]!r} is no duration: it is too long")
    return min(round(parse_duration(text) * 1000), _MAX_MS)


def duration(name: str, description: str) -> Parameter:
    """Return a parameter that is a duration, such as `10m`; its value is milliseconds, or None."""
    return Parameter(name, description, DURATION, read_duration, None)


def words(name: str, description: str, known: Mapping[str, Any]) -> Parameter:
    """Return a parameter of some known words; its value is the list of what they stand for."""
    schema = {"type": "array", "items": {"type": "string", "enum": list(known)}}
    return Parameter(name, description, schema, _reader(name, known), (), is_list=True)


def word(name: str, description: str, known: Mapping[str, Any], default: str) -> Parameter:
    """Return a parameter of one known word; its value is what that stands for."""
    schema = {"type": "string", "enum": list(known), "default": default}
    return Parameter(name, description, schema, _reader(name, known), known[default])


def _reader(name: str, known: Mapping[str, Any]) -> Read:
    by_case = {word.lower(): value for word, value in known.items()}

    def read(text: str) -> Any:
        if text.lower() not in by_case:
            raise InvalidRequest(unknown_word(name, text, known.keys()))
        return by_case[text.lower()]

    return read


def read_query(parameters: Iterable[Parameter], query: MultiMapping[str]) -> dict[str, Any]:
    """Return the values of all parameters; raises InvalidRequest if one is not as in the table."""
    by_name = {each.name: each for each in parameters}
    for name in query:
        if name not in by_name:
            known = by_name.keys()
            raise InvalidRequest(
                unknown_word("parameter", name, known)
                if known
                else f"unknown parameter {name[:80]!r}: this takes none"
            )
    return {name: _value(each, query.getall(name, [])) for name, each in by_name.items()}


def _value(parameter: Parameter, given: list[str]) -> Any:
    if any(len(text) > MAX_TEXT for text in given):
        raise InvalidRequest(f"{parameter.name} is longer than {MAX_TEXT} characters")
    if parameter.is_list:
        if not parameter.has_commas:
            given = [part for text in given for part in text.split(",")]
        return [parameter.read(text) for text in given if text]
    if len(given) > 1:
        raise InvalidRequest(f"{parameter.name} is given {len(given)} times")
    return parameter.read(given[0]) if given else parameter.default


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One request, checked.

    Attributes:
        http: the request itself, for answers that are no JSON.
        calls: makes calls of gRPC's services for its caller.
        path: the variable parts of the path.
        query: the values of all parameters of the route.
        body: the JSON object of a POST.
        page_of: returns the URL of the page of the master at HOST:PORT; empty if unknown.
    """

    http: web.Request
    calls: Calls
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    page_of: Callable[[str], str]

    async def ask(self, method: str, request: Any) -> Any:
        """Call a method of gRPC's services, such as `ListTasks`; raises as `Calls.ask`."""
        return await self.calls.ask(method, request)


# Returns a message or a JSON value, encoded JSON, or an answer of another kind.
ApiHandler = Callable[[Asked], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One operation of the API.

    Attributes:
        path: below `/api/v1`; `{name}` is a part, and `{name:.+}` any number of them.
        summary: what it does, for OpenAPI.
        answer: the message whose JSON object it returns, or a schema; None if that is no JSON.
        method: GET or POST.
        body: the message whose JSON object a POST's body is.
        is_shared: whether an answer serves equal requests of the same caller for a second.
    """

    path: str
    handler: ApiHandler
    summary: str
    answer: Any
    query: tuple[Parameter, ...] = ()
    method: str = "GET"
    body: Any = None
    is_shared: bool = False
    content_type: str = "application/json"


def call_route(path: str, method: str, summary: str, *, is_shared: bool = False) -> ApiRoute:
    """Return the route to an operator call such as `GetOverview`, whose fields are in the path."""
    request, answer = (getattr(pb, f"{method}{end}") for end in ("Request", "Response"))

    async def handle(asked: Asked) -> Any:
        return await asked.ask(method, request(**asked.path))

    return ApiRoute(path, handle, summary, answer, is_shared=is_shared)
