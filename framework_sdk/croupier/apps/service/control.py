"""The control socket of a service on this machine: requests of commands, and the answers.

One request and one answer in JSON for each connection to a socket, each on a line. Only the owner
of the directory can connect. The socket is addressed through the open directory, because the
address of a Unix socket has at most 107 bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from croupier.apps.job_file.section import Section
from croupier.apps.service.controller import Controller
from croupier.apps.service.core import events
from croupier.apps.service.file import ServiceFile, read_service
from croupier.apps.service.status import Journal, service_view
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


class Requests:
    """Changes a service, and answers about it."""

    def __init__(self, controller: Controller, journal: Journal) -> None:
        self._controller, self._journal = controller, journal

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Do what the request asks, and answer when it is durable.

        Raises:
            CroupierError: if it is refused.
        """
        controller, before = self._controller, self._journal.last
        service, now = controller.service, controller.now()
        more: Answer = {}
        match request.get("do"):
            case "status":
                view = service_view(service, now, controller_pid=os.getpid())
                since = int(request.get("since", before))
                return {"status": view, "lines": self._journal.since(since), "last": before}
            case "apply":
                more["is_update"] = self.apply(read_service(Section(request["tables"])))
            case "scale":
                events.scale(service, int(request["instances"]))
            case "rollout":
                match request["action"]:
                    case "restart":
                        events.restart(service, now)
                    case "undo":
                        events.undo(service, now)
                    case "pause" | "resume" as action:
                        events.pause(service, is_paused=action == "pause")
                    case action:
                        raise InvalidRequest(f"{str(action)!r} is not an action on an update")
            case "stop":
                service.is_stopping = True
            case "release":
                controller.finish()
                return {}
            case other:
                raise InvalidRequest(f"the controller cannot {other!r}: is it an older release?")
        await controller.turn()
        return {**more, "version": service.target, "last": before}

    def apply(self, file: ServiceFile) -> bool:
        """Apply a newer file; return whether it starts an update.

        Raises:
            Conflict: if it is of another service, or names another role.
        """
        service = self._controller.service
        if file.name != service.name:
            raise Conflict(f"the file is of service {file.name}, not of {service.name}")
        if file.role != service.role:
            raise Conflict(
                f"service {service.name} runs in role {service.role}: stop it, and apply the file"
                f" again, to change that to {file.role}"
            )
        now = self._controller.now()
        return events.apply(service, file.rules, file.digest, file.health, file.content, now)
