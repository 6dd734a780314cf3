"""What a task that runs has used so far, as its agent measures it now."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from croupier.api.isolation import usage_view
from croupier.ctl.connection import Master
from croupier.ctl.views.amounts import View
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId
from croupier.net.agent_tls import agent_context
from croupier.net.credentials import ClientSecurity
from croupier.v1 import operator_pb2 as pb
from croupier.v1 import task_pb2

TIMEOUT_S: Final = 5.0
MAX_BYTES: Final = 4096
_MIB: Final = 2**20
# Fields in the answer of agents, and in protobuf.
_FIELDS: Final = {
    "cpu_ms": "cpu_ms",
    "memory_peak": "memory_peak_bytes",
    "pids_peak": "pids_peak",
    "read_bytes": "read_bytes",
    "written_bytes": "written_bytes",
    "disk_bytes": "disk_bytes",
}


@dataclass(frozen=True, slots=True)
class LiveUse:
    """What an agent says about a task that runs.

    Attributes:
        usage: what it has used so far; None if that is unknown.
        limits: those that its agent enforces, as in `limits_view`.
        problem: the reason if something is unknown; else empty.
    """

    usage: View | None = None
    limits: View = field(default_factory=dict)
    problem: str = ""


async def live_usage(master: Master, task: View, security: ClientSecurity) -> LiveUse:
    """Ask the agent of a task, by a link of the master's."""
    request = pb.GetOutputLinksRequest()
    ids = {name: task[name] for name in ("framework_id", "task_id", "agent_id")}
    request.tasks.add(**ids)
    try:
        answer = await master.ask(master.service.GetOutputLinks, request)
        links = next(iter(answer.links), None)
        if links is None:
            why = "the master gives no link: you may not read the output of the task"
            return LiveUse(problem=why)
        if not links.usage or not links.http_address:
            return LiveUse(problem="its agent or its master serves none")
        return await fetch_use(links, security)
    except (CroupierError, aiohttp.ClientError, TimeoutError, OSError) as error:
        return LiveUse(problem=str(error) or type(error).__name__)


async def fetch_use(links: pb.OutputLinks, security: ClientSecurity) -> LiveUse:
    """Follow a link to the use of a task.

    Raises:
        InvalidRequest: if the agent has TLS, and the authorities cannot be used.
        ClientError, TimeoutError, OSError: if the agent cannot be reached.
    """
    address = links.http_address
    root = address if "://" in address else f"http://{address}"
    is_tls = root.startswith("https:")
    tls = agent_context(security, AgentId(links.agent_id)) if is_tls else True
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
        session.get(root + links.usage, ssl=tls, allow_redirects=False) as got,
    ):
        body = await got.content.read(MAX_BYTES)
    if got.status == 404:
        return LiveUse(problem="its agent does not know it, or is of an older release")
    if got.status != 200:
        told = body.decode(errors="replace").strip() or str(got.status)
        return LiveUse(problem=f"its agent answers {told}")
    return _use(body)


def _use(body: bytes) -> LiveUse:
    """Read an agent's answer: an agent may be false, or of another release."""
    try:
        answer = json.loads(body)
        usage, limits = answer.get("usage"), answer.get("limits") or {}
        bounds = _limits(limits)
        if usage is None:
            return LiveUse(limits=bounds, problem="its agent does not measure tasks")
        numbers = {wire: _whole(usage.get(name)) or 0 for name, wire in _FIELDS.items()}
    except (ValueError, AttributeError, RecursionError):
        return LiveUse(problem="its agent answers in another form")
    return LiveUse(usage_view(task_pb2.Usage(**numbers)), bounds)


def _limits(limits: Any) -> View:
    """Return the limits that are set, in the units of `limits_view`."""
    cpus, completion_ms = limits.get("cpus"), _whole(limits.get("completion_ms"))
    found = {
        "cpus": _whole(round(cpus * 1000)) if isinstance(cpus, int | float) else None,
        "mem": _thousandths(limits.get("memory_bytes")),
        "disk": _thousandths(limits.get("disk_bytes")),
        "pids": _whole(limits.get("pids")),
        "files": _whole(limits.get("files")),
        "max_completion_s": None if completion_ms is None else completion_ms / 1000,
    }
    return {name: value for name, value in found.items() if value}


def _thousandths(size: Any) -> int | None:
    """Return bytes in thousandths of a MiB."""
    number = _whole(size)
    return None if number is None else round(number * 1000 / _MIB)


def _whole(number: Any) -> int | None:
    """Return a number of an answer; None if it is absent.

    Raises:
        ValueError: if it is not a number, or out of range.
    """
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < 2**63:
        raise ValueError("not a number of an agent")
    return number
