"""HTTP servers of daemons that listen at once."""

from __future__ import annotations

from croupier.net.address import Address
from croupier.process.http.listening import Listening
from croupier.process.http.server import HttpServer

ANY_PORT = Address("127.0.0.1", 0)


async def listen(server: HttpServer, address: Address = ANY_PORT) -> int:
    """Serve on `address`, and return the port."""
    listening = await Listening.open(address)
    await server.serve(listening)
    return listening.port
