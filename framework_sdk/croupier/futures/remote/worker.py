"""A worker: a keeper, which talks to the executor, and its child, which runs the calls.

The executor sends this file and what it imports to the workers, which have no Croupier. They use
the standard library, and cloudpickle, which the executor sends too.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from croupier.futures.remote.keeper import Keeper
from croupier.futures.remote.runner import Runner


def main(link: socket.socket) -> None:
    """Be a keeper; returns in children, when they have no more to do."""
    with suppress(ImportError):
        import cloudpickle  # noqa: F401 - so that children have it
    link.settimeout(None)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    inherited = Keeper(link).run()
    assert inherited is not None
    Runner(inherited).serve()


if __name__ == "croupier_futures_worker":
    main(globals()["link"])
