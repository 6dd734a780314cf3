"""The control socket: how commands reach the controller of a service on this machine.

One request and one answer in JSON for each connection, each on a line. Only the owner of the
directory can connect. The socket is addressed through the open directory, because the address of
a Unix socket has at most 107 bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from croupier.model.errors import Conflict, CroupierError, InvalidRequest, Unavailable

SOCKET: Final = "control.sock"
MAX_BYTES: Final = 20 * 1024 * 1024
READ_S: Final = 10.0
ANSWER_S: Final = 15.0

Answer = dict[str, Any]
_ERRORS: Final[Mapping[str, type[CroupierError]]] = {
    "InvalidRequest": InvalidRequest,
    "Conflict": Conflict,
}


class ControlServer:
    """Answers requests by `answer`, until `close`."""

    def __init__(
        self, directory: Path, answer: Callable[[Mapping[str, Any]], Awaitable[Answer]]
    ) -> None:
        self._directory, self._answer = directory, answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; an old socket is replaced, as the caller holds the lock.

        Raises:
            Unavailable: if the socket cannot be made.
        """
        fd = _open(self._directory)
        try:
            (self._directory / SOCKET).unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(
                    self._serve, f"/proc/self/fd/{fd}/{SOCKET}", limit=MAX_BYTES
                )
            finally:
                os.umask(before)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unavailable(f"cannot listen in {self._directory}: {reason}") from None
        finally:
            os.close(fd)

    async def close(self) -> None:
        """Stop listening, and remove the socket."""
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                (self._directory / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                line = await reader.readline()
            writer.write(json.dumps(await self._answered(line)).encode() + b"\n")
            async with asyncio.timeout(READ_S):
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # the command has gone, or speaks something else
        finally:
            writer.close()

    async def _answered(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise InvalidRequest("the request is no object")
            return {"ok": True, **await self._answer(request)}
        except CroupierError as error:
            return {"ok": False, "kind": type(error).__name__, "error": str(error)}
        except (ValueError, TypeError, KeyError) as error:
            return {"ok": False, "kind": "InvalidRequest", "error": f"malformed request: {error}"}


async def ask(directory: Path, request: Mapping[str, Any], timeout_s: float = ANSWER_S) -> Answer:
    """Return the controller's answer.

    Raises:
        Unavailable: if no controller answers.
        CroupierError: if it refuses.
    """
    fd = _open(directory)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(
                f"/proc/self/fd/{fd}/{SOCKET}", limit=MAX_BYTES
            )
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
            writer.close()
        answer = json.loads(line)
    except TimeoutError:
        raise Unavailable(f"the controller does not answer within {timeout_s:g} s") from None
    except (OSError, ValueError):
        raise Unavailable(
            "no controller answers; instances run on, and `croupier service apply` continues"
        ) from None
    finally:
        os.close(fd)
    if not answer.get("ok"):
        raise _ERRORS.get(answer.get("kind", ""), Unavailable)(str(answer.get("error")))
    return dict(answer)


def _open(directory: Path) -> int:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"cannot open {directory}: {error.strerror}") from None
