"""Refusal to listen on a network without encryption and authentication."""

from __future__ import annotations

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address


def check_exposed(address: Address, *, is_encrypted: bool, is_authenticated: bool) -> None:
    """Check that a listener on `address` is protected, if other machines can reach it.

    Raises:
        InvalidRequest: if it is not.
    """
    if address.is_loopback or (is_encrypted and is_authenticated):
        return
    lacking = [] if is_encrypted else ["encrypted"]
    lacking += [] if is_authenticated else ["authenticated"]
    needed = "--tls-cert and --tls-key" if not is_encrypted else "--auth"
    raise InvalidRequest(
        f"{address} can be reached from other machines, and nothing would be"
        f" {' or '.join(lacking)}; give {needed}, or --insecure to accept that"
    )
