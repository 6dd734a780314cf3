"""The public keys of a provider, from its JSON Web Key Set, and the check of signatures.

Rule: a key has one algorithm, RS256 or ES256, which its type decides and no token can change. Keys
of other types or purposes, and RSA keys of fewer than 2,048 bits, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from croupier.model.errors import Unauthenticated, Unavailable

if TYPE_CHECKING:  # of the extra `oidc`
    from jwt import PyJWK

# The algorithm of each type of key.
ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
# Types of tokens that name a caller; others, such as logout tokens, do not.
TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

# By key id; "" for a key without one.
Keys = Mapping[str, "PyJWK"]


def is_token(text: str) -> bool:
    """Return whether `text` has the form of a signed token."""
    return _FORM.fullmatch(text) is not None


def keys_of(document: Mapping[str, Any]) -> Keys:
    """Return the usable keys of a JSON Web Key Set.

    Raises:
        Unavailable: if there is none, or the document is malformed.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise Unavailable(f"the provider's document of keys has no list of up to {MAX_KEYS} keys")
    keys: dict[str, PyJWK] = {}
    for each in listed:
        if isinstance(each, dict) and (key := _usable(each)) is not None:
            kid = each.get("kid", "")
            keys[kid if isinstance(kid, str) else ""] = key
    if not keys:
        raise Unavailable("the provider's document has no key for RS256 or ES256")
    return keys


def key_id_of(token: str) -> str:
    """Return the id of the key that the token names as its signer; empty if it names none.

    Raises:
        Unauthenticated: if it is malformed, or of an algorithm or a type that is not accepted.
    """
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("the token is malformed") from None
    if header.get("alg") not in ALGORITHMS.values():
        raise Unauthenticated("the token is not signed by RS256 or ES256")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise Unauthenticated("the token is of a type (typ) that is not accepted")
    kid = header.get("kid", "")
    return kid if isinstance(kid, str) else ""


def verified_claims(token: str, key: PyJWK) -> Mapping[str, Any]:
    """Return the claims of a token that `key` has signed; no claim is checked.

    Raises:
        Unauthenticated: if the signature does not match, or the token is malformed.
    """
    import jwt

    unchecked: Any = dict.fromkeys(
        ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False
    )
    try:
        return jwt.decode(token, key, algorithms=[key.algorithm_name], options=unchecked)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("the signature of the token does not match") from None


def _usable(document: Mapping[str, Any]) -> PyJWK | None:
    from jwt import PyJWK, PyJWTError

    kind = document.get("kty")
    algorithm = ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithm is None or document.get("use", "sig") != "sig":
        return None
    if document.get("alg", algorithm) != algorithm or document.get("crv", "P-256") != "P-256":
        return None
    public = {name: value for name, value in document.items() if name in _PUBLIC}
    try:
        key = PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError, OverflowError):
        return None
    is_short = kind == "RSA" and getattr(key.key, "key_size", 0) < MIN_RSA_BITS
    return None if is_short else key


# Members of public keys; nothing else of a key is read, nor kept.
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
