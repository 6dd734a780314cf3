"""Bodies of requests: JSON objects, checked against their `TypedDict`.

A body is refused before it is read if its sender may be another site's page, or it is too large.
"""

from __future__ import annotations

import asyncio
import json
import types
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import urlsplit

from aiohttp import web

from croupier.master.web.errors import Forbidden, TooLarge
from croupier.model.errors import InvalidRequest, TooSlow
from croupier.model.suggestions import unknown_word

MAX_BODY: Final = 64 * 1024
BODY_S: Final = 10.0
# The header that pages of other sites cannot send without the consent of this one.
HEADER: Final = "X-Croupier"
_OWN_SITE: Final = ("same-origin", "none")
_NAMES: Final[Mapping[Any, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


def check_sender(request: web.Request) -> None:
    """Check that no page of another site has made a browser send this request.

    Raises:
        Forbidden: if one may have.
        InvalidRequest: if the body is not JSON.
    """
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
    """Check the announced size of a body.

    Raises:
        TooLarge: if it is too large.
    """
    if (request.content_length or 0) > MAX_BODY:
        raise TooLarge(f"the body has {request.content_length} bytes; at most {MAX_BODY}")


async def read_body(request: web.Request, kind: Any) -> dict[str, Any]:
    """Return the body of a request, an object of the `TypedDict` `kind`; no body is an empty one.

    Raises:
        CroupierError: if it is not one, too large, or does not arrive in time.
    """
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
    check(found, kind, "the body")
    return dict(found)


def check(value: Any, hint: Any, where: str) -> None:
    """Check that a JSON value has a type; `where` names it in errors.

    Raises:
        InvalidRequest: if it does not.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        _check_object(value, hint, where)
    elif origin is Literal:
        if value not in arguments:
            raise InvalidRequest(
                unknown_word(f"value of {where}", _of_kind(value, str, where, "a text"), arguments)
            )
    elif origin is list:
        for index, each in enumerate(_of_kind(value, list, where, "a list")):
            check(each, arguments[0], f"{where}[{index}]")
    elif origin is dict:
        for key, each in _of_kind(value, dict, where, "an object").items():
            check(each, arguments[1], f"{where}.{key[:80]}")
    elif origin in (Union, types.UnionType):
        if not any(_is_plain(value, each) for each in arguments):
            names = " or ".join(_NAMES[each] for each in arguments)
            raise InvalidRequest(f"{where} must be {names}")
    elif not _is_plain(value, hint):
        raise InvalidRequest(f"{where} must be {_NAMES[hint]}")


def _check_object(value: Any, kind: Any, where: str) -> None:
    hints = get_type_hints(kind)
    for key, each in _of_kind(value, dict, where, "an object").items():
        if key not in hints:
            raise InvalidRequest(f"{where}: {unknown_word('key', key, hints)}")
        check(each, hints[key], key if where == "the body" else f"{where}.{key}")
    for key in sorted(kind.__required_keys__):
        if key not in value:
            raise InvalidRequest(f"{where} lacks {key!r}")


def _of_kind(value: Any, kind: type, where: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidRequest(f"{where} must be {name}")
    return value


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        # JSON has no whole numbers: 1.0 is one.
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return is_whole and not isinstance(value, bool)
    return isinstance(value, kind)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
