"""Credentials of Mesos' clients.

Rule: a secret is a bearer token, whether it comes as a bearer token, as the password of Basic
authentication, or in `subscribe.credentials`. Its principal decides, not the name beside it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from aiohttp import web

from croupier.mesos.fields import Json, entries, text
from croupier.model.errors import Unauthenticated
from croupier.process.http.credentials import (
    MAX_HEADER,
    HttpCredential,
    bearer_of,
    credential_of,
)

_BASIC: Final = "basic "


def mesos_credential(request: web.Request, secret: str = "") -> HttpCredential:
    """Return the credential of a request; `secret` is that in its body.

    Raises:
        Unauthenticated: if the header Authorization is malformed.
    """
    return credential_of(request, lambda asked: _token_of(asked) or secret or None)


def secret_in(of: Json) -> str:
    """Return the secret in a SUBSCRIBE; empty if there is none."""
    listed = entries(of, "subscribe", "credentials")
    return text(listed[0], "secret") if listed else ""


def _token_of(request: web.Request) -> str | None:
    value = request.headers.get("Authorization", "")
    if value[: len(_BASIC)].lower() != _BASIC:
        return bearer_of(request)
    if len(value) > MAX_HEADER:
        raise Unauthenticated("the header Authorization is too long")
    try:
        named = base64.b64decode(value[len(_BASIC) :], validate=True).decode()
    except (binascii.Error, ValueError):
        raise Unauthenticated("the header Authorization is malformed") from None
    return named.partition(":")[2]
