"""gRPC channels and servers with the options that were measured to matter.

- `so_reuseport` 0: otherwise two masters bind one port without an error and share its clients.
- keepalive needs `ping_timeout_ms` too: without it a frozen peer is noticed after 65 s
  instead of 13 s. The server must allow pings that often, or it closes connections of clients.
- `enable_http_proxy` 0: otherwise gRPC connects to a master through the web proxy.
- `max_allowed_incoming_connections`: the server closes connections beyond it. gRPC has no such
  bound for each address; the master bounds sessions by address instead.
- `bdp_probe` 0: a peer that stops reading then buffers 0.1 MB instead of 5 MB.
"""

from __future__ import annotations

import os
import random
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import grpc
import grpc.aio

from croupier.model.errors import InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity, Metadata

# The limit of one call or report; the receiver refuses a larger one. A message carries
# several, and gRPC ends a stream only above the two limits below, before it reads the message. The
# first bounds what each stream makes a master hold: agents send up to 1 MiB, or pages, and the SDK
# 512 KiB or one call. Clients trust the master, so its messages may be larger.
MAX_MESSAGE_BYTES = 1024 * 1024
TO_SERVER_BYTES = 2 * 1024 * 1024
TO_CLIENT_BYTES = 32 * 1024 * 1024
# Of a connection attempt: less fails for far and busy peers, more waits for frozen ones.
CONNECT_S = 2.0
# Time for which calls wait for a busy loop. gRPC cancels them after 30 s, so that thousands of
# agents that come back to a slow machine would all begin again.
PENDING_S = 60
# Bytes of a path that fits into the address of a unix socket.
_LONGEST_PATH: Final = 100

_BOTH: list[tuple[str, int]] = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    # A client must ping while it has no calls, and the server must allow it, or it disconnects
    # idle operators after two minutes ("too_many_pings").
    ("grpc.keepalive_permit_without_calls", 1),
    # Only "identity": 32 KB of gzip expand to 32 MB before any limit is checked.
    ("grpc.compression_enabled_algorithms_bitset", 1),
]
_SERVER = [
    *_BOTH,
    ("grpc.max_receive_message_length", TO_SERVER_BYTES),
    ("grpc.max_send_message_length", TO_CLIENT_BYTES),
    # The server closes a connection that has not completed the handshake, or has no calls.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 120_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
_CHANNEL = [
    *_BOTH,
    ("grpc.max_receive_message_length", TO_CLIENT_BYTES),
    ("grpc.max_send_message_length", TO_SERVER_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # Our own backoff decides when to reconnect; gRPC must not add its own on top.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

# Methods of a channel that return a call.
_MAKERS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
# Shares of all descriptors; the rest is for the daemon's own files. A connection takes
# one, and a process without a free one can open no file, start no task and accept no connection.
_GRPC_SHARE: Final = 0.6
_HTTP_SHARE: Final = 0.15
MOST_HTTP: Final = 512


class TokenChannel:
    """Passes everything to another channel, and adds metadata to each call: the client's token.

    gRPC's own call credentials refuse plain text, even on loopback, and its interceptors replace
    the call objects of streams by others.
    """

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        """Own `channel`: closing this one closes it."""
        self._channel, self._metadata = channel, metadata

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name not in _MAKERS:
            return found
        return lambda *args, **more: self._with_metadata(found(*args, **more))

    def _with_metadata(self, call: Callable[..., Any]) -> Callable[..., Any]:
        own = self._metadata

        def called(*args: Any, metadata: Any = None, **more: Any) -> Any:
            return call(*args, metadata=(*own, *(metadata or ())), **more)

        return called

    async def __aenter__(self) -> grpc.aio.Channel:
        return cast("grpc.aio.Channel", self)

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def connection_share() -> int:
    """Return the limit of gRPC connections of peers."""
    return max(1, int(_limit() * _GRPC_SHARE))


def http_share() -> int:
    """Return the limit of HTTP connections. Each may need a file, too."""
    return max(1, min(MOST_HTTP, int(_limit() * _HTTP_SHARE)))


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else min(soft, 2**20)


def make_channel(
    address: Address, security: ClientSecurity | None = None, connect_s: float = CONNECT_S
) -> grpc.aio.Channel:
    """Return a channel to one master; the caller closes it.

    The files of `security` are read now. Its default is plain text without a token. `connect_s`
    bounds a connection attempt, from its first packet to the peer's SETTINGS. Raises Unavailable if
    a file of `security` cannot be used now.
    """
    options = [*_CHANNEL, ("grpc.min_reconnect_backoff_ms", round(connect_s * 1000))]
    if security is None:
        return grpc.aio.insecure_channel(str(address), options=options)
    try:
        credentials, metadata = security.channel_credentials(), security.metadata(address)
        name = security.target_name()
    except InvalidRequest as error:
        # Files may be half renewed. Clients check them when they start.
        raise Unavailable(str(error)) from error
    channel = _secure_channel(address, credentials, name, options)
    return cast("grpc.aio.Channel", TokenChannel(channel, metadata)) if metadata else channel


def _secure_channel(
    address: Address,
    credentials: grpc.ChannelCredentials | None,
    name: str,
    options: list[tuple[str, int]],
) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(str(address), options=options)
    verified = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.aio.secure_channel(str(address), credentials, options=[*options, *verified])


def make_server(
    most_connections: int | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    most_calls: int = 100,
) -> grpc.aio.Server:
    """Return a server, which the caller stops; `most_connections` None is the process's share.

    Each connection has `most_calls` at a time. A peer needs one, and operators a few.
    """
    most = connection_share() if most_connections is None else most_connections
    return grpc.aio.server(
        interceptors=interceptors,
        options=[
            *_SERVER,
            ("grpc.max_concurrent_streams", most_calls),
            ("grpc.max_allowed_incoming_connections", most),
            # Calls that wait for the loop. gRPC cancels some beyond 1,000 by default, and all
            # beyond 3,000: many agents that register with a busy master saw CANCELLED.
            ("grpc.server.max_pending_requests", most),
            ("grpc.server.max_pending_requests_hard_limit", most),
            ("grpc.server_max_unrequested_time_in_server", PENDING_S),
        ],
    )


def bind(
    server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None
) -> int:
    """Listen on `address` and return the port; raises Unavailable. No `credentials`: plain text."""
    _check_free(address)
    try:
        if credentials is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), credentials)
    except RuntimeError:
        port = 0
    if not port:
        raise Unavailable(
            f"cannot listen on {address}: the port is in use, or this user may not bind it"
        )
    return port


def socket_target(file: Path, directory: int) -> str:
    """Return a socket as a target of gRPC; `directory` is open, for a path that is too long."""
    path = os.fsencode(file)
    if len(path) > _LONGEST_PATH:
        path = os.fsencode(f"/proc/self/fd/{directory}/{file.name}")
    return f"unix:{quote(path)}"


def _check_free(address: Address) -> None:
    """Bind once for a trial, because gRPC prints lines of its own if it cannot."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        raise Unavailable(f"cannot listen on {address}: no such host") from None
    problem = ""
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                return
        except OSError as error:
            problem = error.strerror or str(error)
    raise Unavailable(f"cannot listen on {address}: {problem}")


def free_addresses(number: int) -> list[Address]:
    """Return free addresses on loopback, which no other call returns while this process runs.

    Their ports are below those of tasks and of outgoing connections, so that none of these takes
    one before it is used.
    """
    found: list[Address] = []
    while len(found) < number:
        port = random.randrange(10_000, 31_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            # The port stays bound, so that no other probe can bind it. A listener can from now on.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.detach()
            found.append(Address("127.0.0.1", port))
    return found
