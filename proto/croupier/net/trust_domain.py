"""Names in certificates: the trust domain of a cluster, and the identities in it.

A certificate names its holder by a SAN URI, `croupier://CLUSTER/KIND/NAME`, and an authority its
cluster by `croupier://CLUSTER`. CLUSTER is the trust domain, and NAME is percent-encoded. Only
certificates of masters have the DNS name `master.CLUSTER.croupier`, which clients verify: so no
other certificate of the same authority passes for a master.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from croupier.model.errors import InvalidRequest

SCHEME: Final = "croupier://"
# The last label of the DNS name of masters; no certificate of another kind may have such a name.
MASTER_DOMAIN: Final = "croupier"

# It is part of a DNS name.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Percent-encoded, these would make a second spelling of a name.
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "-._~/")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{0,7}}")


def check_trust_domain(text: str) -> str:
    """Return `text` if it is a trust domain: a-z, 0-9, `-` and `.`; raises InvalidRequest."""
    if len(text) > 200 or not _DOMAIN.fullmatch(text):
        raise InvalidRequest(
            f"{text[:80]!r} is not the name of a cluster: lower-case letters, digits and '-'"
        )
    return text


def master_dns_name(trust_domain: str) -> str:
    """Return the DNS name that all certificates of masters have, and no other has."""
    return f"master.{trust_domain}.{MASTER_DOMAIN}"


def agent_dns_name(trust_domain: str) -> str:
    """Return the DNS name that all certificates of agents have, and no other has."""
    return f"agent.{trust_domain}.croupier"


def identity_uri(trust_domain: str, name: str) -> str:
    """Return the SAN URI of the principal `name`, such as `agent/A1`; of the authority if empty."""
    return f"{SCHEME}{trust_domain}/{quote(name)}" if name else f"{SCHEME}{trust_domain}"


def split_uri(uri: str) -> tuple[str, str] | None:
    """Return the trust domain and the name in a SAN URI; None if it is another kind of URI.

    The name is that of a principal, such as `agent/A1`, decoded; empty for an authority. A URI that
    encodes a character without need is of another kind, so that a name has one spelling.
    """
    if not uri.startswith(SCHEME):
        return None
    domain, _, name = uri.removeprefix(SCHEME).partition("/")
    is_known = _DOMAIN.fullmatch(domain) and len(domain) <= 200
    if any(unquote(each) in _PLAIN for each in _ENCODED.findall(name)):
        return None
    return (domain, unquote(name)) if is_known else None


def trust_domains(uris: Iterable[str]) -> frozenset[str]:
    """Return the trust domains that the SAN URIs of certificates name."""
    return frozenset(found[0] for uri in uris if (found := split_uri(uri)) is not None)
