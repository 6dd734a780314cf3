"""An OpenID Connect provider on loopback, which a test can break and whose keys it can change."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "croupier"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: PrivateKey, kid: str | None, **more: str) -> dict[str, Any]:
    """Return the public part of a key as in a document of keys."""
    if isinstance(key, rsa.RSAPrivateKey):
        document = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        document = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**document, **({} if kid is None else {"kid": kid}), **more}


class IdentityProvider:
    """Serves a discovery document and keys.

    Attributes:
        asked: the paths of all requests.
        status: of all answers; 200 by default.
        discovery: overrides members of the discovery document.
    """

    def __init__(self) -> None:
        self.issuer = ""
        self.asked: list[str] = []
        self.status = 200
        self.discovery: dict[str, Any] = {}
        self.keys: dict[str, PrivateKey] = {"k1": ec_key()}

    @property
    def url(self) -> str:
        """The URL of the keys."""
        return f"{self.issuer}/keys"

    def jwks(self) -> dict[str, Any]:
        return {"keys": [public_jwk(key, kid) for kid, key in self.keys.items()]}

    def claims(self, **more: Any) -> dict[str, Any]:
        """Return the claims of a good token; None removes one."""
        now = time.time()
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "alice@example.com",
            "iat": now,
            "exp": now + 300,
            **more,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str = "k1", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token that is signed by a key."""
        key = self.keys[kid]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(
            self.claims(**claims), key, algorithm, headers={"kid": kid, **(headers or {})}
        )

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.status != 200:
            return web.Response(status=self.status)
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(
                {"issuer": self.issuer, "jwks_uri": self.url, **self.discovery}
            )
        return web.json_response(self.jwks())


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    """Run a provider on a free port."""
    provider = IdentityProvider()
    app = web.Application()
    app.add_routes([web.get("/{path:.*}", provider.serve)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
