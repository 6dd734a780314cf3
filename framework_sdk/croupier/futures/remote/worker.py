"""A worker: a keeper, which talks to the executor, and its child, which runs the calls.

The executor sends this file and what it imports to the workers, which have no Croupier. They use
the standard library, and cloudpickle, which the executor sends too.
"""
# ruff: noqa: S301 - it talks to its executor only

from __future__ import annotations

import pickle
import socket
import struct
import traceback
from contextlib import suppress
from typing import Any, Final

from croupier.futures.remote import protocol
from croupier.futures.remote.keeper import Keeper


class Runner:
    """Runs calls, in the child."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._reader, self._sock = sock.makefile("rb", protocol.CHUNK), sock
        self._limit = 0
        # Pickled until the first call.
        self._functions: dict[int, Any] = {}

    def serve(self) -> None:
        """Run calls until the keeper closes the connection."""
        while head := self._reader.read(protocol.HEADER.size):
            if len(head) < protocol.HEADER.size:
                return
            kind, number, size = protocol.HEADER.unpack(head)
            body = self._reader.read(size)
            if kind == protocol.CALL:
                self._send(*self._outcome(body), number)
                del body
            elif kind == protocol.FUNCTION:
                self._functions[number] = body
            elif kind == protocol.FORGET:
                self._functions.pop(number, None)
            elif kind == protocol.SETUP and not self._set_up(number, body):
                return

    def _set_up(self, limit: int, body: bytes) -> bool:
        self._limit = limit
        try:
            if body:
                initializer, arguments = pickle.loads(body)
                initializer(*arguments)
        except BaseException:
            self._send(protocol.SETUP_FAILED, traceback.format_exc().encode())
            return False
        self._send(protocol.READY, b"")
        return True

    def _outcome(self, body: bytes) -> tuple[int, bytes]:
        """Run a call; return the kind and the body of its answer."""
        try:
            value = self._run(body)
            result = _pickled(value)
        except BaseException as error:
            return protocol.ERROR, _error_body(error, self._limit)
        if len(result) > self._limit:
            head = protocol.ERROR_HEAD.pack(protocol.TOO_LARGE, 0)
            return protocol.ERROR, head + struct.pack("!Q", len(result))
        return protocol.RESULT, result

    def _run(self, body: bytes) -> object:
        key, is_chunk = protocol.CALL_HEAD.unpack_from(body)
        payload = memoryview(body)[protocol.CALL_HEAD.size :]
        if not key:
            function, arguments, named = pickle.loads(payload)
        else:
            function = self._functions[key]
            if isinstance(function, bytes):
                function = self._functions[key] = pickle.loads(function)
            arguments, named = pickle.loads(payload)
        if is_chunk:
            return [function(*each) for each in arguments]
        return function(*arguments, **named)

    def _send(self, kind: int, body: bytes, number: int = 0) -> None:
        head = protocol.HEADER.pack(kind, number, len(body))
        if len(body) < protocol.CHUNK:
            self._sock.sendall(head + body)
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)


_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def _pickled(value: object) -> bytes:
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _error_body(error: BaseException, limit: int) -> bytes:
    # Without the frames of this file.
    trace = error.__traceback__
    while (
        trace is not None and trace.tb_frame.f_code.co_filename == _error_body.__code__.co_filename
    ):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).encode(errors="replace")
    text = text[-limit // 2 :]
    try:
        pickled = _pickled(error)
        pickle.loads(pickled)
    except BaseException:
        pickled = b""
    if not pickled or len(pickled) > limit // 2:
        return protocol.ERROR_HEAD.pack(protocol.UNPICKLABLE, len(text)) + text
    return protocol.ERROR_HEAD.pack(protocol.RAISED, len(text)) + text + pickled


def main(link: socket.socket) -> None:
    """Run the keeper. In a child this returns when the child has nothing left to do."""
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
