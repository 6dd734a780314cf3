"""The control socket of a service on this machine: requests of commands, and the answers.

One request and one answer in JSON for each connection to a socket, each on a line. Only the owner
of the directory can connect. The socket is addressed through the open directory, because the
address of a Unix socket has at most 107 bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
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
Answering = Callable[[Mapping[str, Any]], Awaitable[Answer]]
_ERRORS: Final[Mapping[str, type[CroupierError]]] = {
    "InvalidRequest": InvalidRequest,
    "Conflict": Conflict,
}


@asynccontextmanager
async def listening(directory: Path, answer: Answering) -> AsyncIterator[None]:
    """Answer requests by `answer`; an old socket is replaced, as the caller holds the lock.

    Raises Unavailable if the socket cannot be made.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                line = await reader.readline()
            writer.write(json.dumps(await _answered(line, answer)).encode() + b"\n")
            async with asyncio.timeout(READ_S):
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # the command has gone, or speaks something else
        finally:
            writer.close()

    fd, socket = _open(directory), directory / SOCKET
    try:
        socket.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            address = f"/proc/self/fd/{fd}/{SOCKET}"
            server = await asyncio.start_unix_server(serve, address, limit=MAX_BYTES)
        finally:
            os.umask(before)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable(f"cannot listen in {directory}: {reason}") from None
    finally:
        os.close(fd)
    try:
        yield
    finally:
        server.close()
        with suppress(OSError):
            socket.unlink(missing_ok=True)


async def _answered(line: bytes, answer: Answering) -> Answer:
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise InvalidRequest("the request is no object")
        return {"ok": True, **await answer(request)}
    except CroupierError as error:
        return {"ok": False, "kind": type(error).__name__, "error": str(error)}
    except (ValueError, TypeError, KeyError) as error:
        return {"ok": False, "kind": "InvalidRequest", "error": f"malformed request: {error}"}


async def ask(directory: Path, request: Mapping[str, Any], timeout_s: float = ANSWER_S) -> Answer:
    """Return the controller's answer; raises Unavailable if none comes, or its refusal."""
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


async def answer_about(
    controller: Controller, journal: Journal, request: Mapping[str, Any]
) -> Answer:
    """Do what is asked, and answer when it is durable; raises CroupierError if it is refused."""
    before, service, now = journal.last, controller.service, controller.now()
    more: Answer = {}
    match request.get("do"):
        case "status":
            view = service_view(service, now, controller_pid=os.getpid())
            since = int(request.get("since", before))
            return {"status": view, "lines": journal.since(since), "last": before}
        case "apply":
            more["is_update"] = apply(controller, read_service(Section(request["tables"])))
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


def apply(controller: Controller, file: ServiceFile) -> bool:
    """Apply a newer file; return whether it starts an update.

    Raises Conflict if it is of another service, or names another role.
    """
    service = controller.service
    if file.name != service.name:
        raise Conflict(f"the file is of service {file.name}, not of {service.name}")
    if file.role != service.role:
        raise Conflict(
            f"service {service.name} runs in role {service.role}: stop it, and apply the file"
            f" again, to change that to {file.role}"
        )
    return events.apply(service, file.rules, file.version, controller.now())
