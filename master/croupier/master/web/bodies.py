"""Bodies of requests: JSON objects, checked against their schema.

A body is refused before it is read if its sender may be another site's page, or it is too large.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from croupier.api.forms import Schema
from croupier.api.schema import Schemas
from croupier.master.web.errors import Forbidden, TooLarge
from croupier.model.errors import InvalidRequest, TooSlow
from croupier.model.suggestions import unknown_word

MAX_BODY: Final = 64 * 1024
BODY_S: Final = 10.0
# The header that pages of other sites cannot send without the consent of this one.
HEADER: Final = "X-Croupier"
_OWN_SITE: Final = ("same-origin", "none")
_BODY: Final = "the body"
# Names and classes of the types of JSON's schema.
_KINDS: Final[Mapping[str, tuple[str, Any]]] = {
    "string": ("a text", str),
    "boolean": ("true or false", bool),
    "integer": ("a whole number", int | float),
    "number": ("a number", int | float),
    "array": ("a list", list),
    "object": ("an object", dict),
}
_SCHEMAS: Final = Schemas()


def check_sender(request: web.Request) -> None:
    """Raise Forbidden if a page of another site may have sent this, InvalidRequest unless JSON."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and urlsplit(origin).netloc != request.host
    if is_foreign or (site is not None and site not in _OWN_SITE):
        raise Forbidden("this request comes from the page of another site")
    if request.headers.get(HEADER) != "1":
        raise Forbidden(f"the header {HEADER}: 1 is missing: it shows that no other site asks")
    if request.content_type != "application/json":
        raise InvalidRequest("the body must be JSON: send Content-Type: application/json")


def check_size(request: web.Request) -> None:
    """Check the announced size of a body; raises TooLarge if it is too large."""
    if (request.content_length or 0) > MAX_BODY:
        raise TooLarge(f"the body has {request.content_length} bytes; at most {MAX_BODY}")


async def read_body(request: web.Request, kind: Any) -> dict[str, Any]:
    """Return a request's body as the message `kind`, or empty; raises CroupierError if wrong."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > MAX_BODY:
                    raise TooLarge(f"the body is too large; at most {MAX_BODY} bytes")
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {BODY_S:g} s") from None
    except web.PayloadAccessError:
        raise InvalidRequest("the body ended early") from None
    if not data:
        data = bytearray(b"{}")
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not valid JSON") from None
    check(found, _SCHEMAS.of(kind), _BODY)
    return dict(found)


def check(value: Any, schema: Schema, where: str) -> None:
    """Raise InvalidRequest if a JSON value is not of a type; `where` names it in errors."""
    if "$ref" in schema:
        schema = _SCHEMAS.components[schema["$ref"].rpartition("/")[2]]
    kind = schema["type"]
    if not _is_of(value, kind):
        raise InvalidRequest(f"{where} must be {_KINDS[kind][0]}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidRequest(unknown_word(f"value of {where}", value, schema["enum"]))
    if kind == "array":
        for index, each in enumerate(value):
            check(each, schema["items"], f"{where}[{index}]")
    elif kind == "object":
        _check_keys(value, schema, where)


def _check_keys(value: Mapping[str, Any], schema: Schema, where: str) -> None:
    known, others = schema.get("properties", {}), schema["additionalProperties"]
    for key, each in value.items():
        if not others and key not in known:
            raise InvalidRequest(f"{where}: {unknown_word('key', key, known)}")
        name = key if where == _BODY else f"{where}.{key[:80]}"
        check(each, known.get(key) or others, name)
    for key in schema.get("required", ()):
        if key not in value:
            raise InvalidRequest(f"{where} lacks {key!r}")


def _is_of(value: Any, kind: str) -> bool:
    if not isinstance(value, _KINDS[kind][1]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    # JSON has no whole numbers: 1.0 is one.
    return kind != "integer" or isinstance(value, int) or value.is_integer()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
