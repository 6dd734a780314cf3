"""A scheduler of Mesos without a library, which may break the protocol."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import Any, Self

import aiohttp

from croupier.master.app import MasterDaemon
from croupier.mesos.fields import Json, encoded, parse_object
from croupier.net.address import Address
from tests.harness.recordio import Records

DEADLINE_S = 30.0
PATH = "/api/v1/scheduler"


class RawScheduler:
    """A stream of SUBSCRIBE, and calls beside it.

    Attributes:
        chunks: all chunks of HTTP that have arrived on the stream.
        heard: all events.
        url: of the scheduler API.
        framework_id: as SUBSCRIBED names it.
        stream_id: as the answer to SUBSCRIBE names it.
    """

    def __init__(
        self,
        address: Address,
        password: str = "",
        ssl: Any = None,
    ) -> None:
        """Send Basic authentication if there is a password."""
        self.url = f"{'http' if ssl is None else 'https'}://{address}{PATH}"
        connector = aiohttp.TCPConnector() if ssl is None else aiohttp.TCPConnector(ssl=ssl)
        credential = base64.b64encode(f"any:{password}".encode()).decode()
        headers = {"Authorization": f"Basic {credential}"} if password else {}
        self.http = aiohttp.ClientSession(connector=connector, headers=headers)
        self.chunks: list[bytes] = []
        self.heard: list[Json] = []
        self._events: list[Json] = []
        self._records = Records(2**24)
        self._answer: aiohttp.ClientResponse | None = None
        self.framework_id = self.stream_id = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.http.close()

    def close(self) -> None:
        """Close the stream."""
        if self._answer is not None:
            self._answer.close()

    async def open(self, framework_id: str = "", subscribe: Json | None = None, **info: Any) -> int:
        """Send SUBSCRIBE and return the status; the stream is open if that is 200."""
        framework = {"user": "nobody", "name": "raw", "failover_timeout": 60, **info}
        call: Json = {"type": "SUBSCRIBE", "subscribe": {"framework_info": framework}}
        call["subscribe"].update(subscribe or {})
        if framework_id:
            call["framework_id"] = framework["id"] = {"value": framework_id}
        self._answer = await self.http.post(self.url, json=call)
        self.stream_id = self._answer.headers.get("Mesos-Stream-Id", "")
        return self._answer.status

    async def subscribe(self, framework_id: str = "", **more: Any) -> Json:
        """Subscribe and return SUBSCRIBED."""
        status = await self.open(framework_id, **more)
        assert status == 200, await self.refusal()
        subscribed: Json = (await self.next("SUBSCRIBED"))["subscribed"]
        self.framework_id = subscribed["framework_id"]["value"]
        return subscribed

    async def refusal(self) -> str:
        """Return the text of the answer to SUBSCRIBE."""
        assert self._answer is not None
        return await self._answer.text()

    async def next(self, kind: str) -> Json:
        """Return the next event of a type; earlier events of other types are queued."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for index, event in enumerate(self._events):
                    if event["type"] == kind:
                        return self._events.pop(index)
                if not await self._read():
                    raise AssertionError(f"the stream ended before {kind}: {self.heard[-3:]}")

    async def offer(self) -> Json:
        """Return the next offer."""
        offers: list[Json] = (await self.next("OFFERS"))["offers"]["offers"]
        return offers[0]

    async def update(self, state: str) -> Json:
        """Acknowledge updates until one has the state, and return its status."""
        while True:
            status: Json = (await self.next("UPDATE"))["update"]["status"]
            if "uuid" in status:
                named = {name: status[name] for name in ("agent_id", "task_id", "uuid")}
                assert (await self.call("ACKNOWLEDGE", **named))[0] == 202
            if status["state"] == state:
                return status

    async def ended(self) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(DEADLINE_S):
            while await self._read():
                pass

    async def call(self, kind: str, **fields: Any) -> tuple[int, str]:
        """Make a call and return its status and text."""
        call: Json = {"type": kind, "framework_id": {"value": self.framework_id}}
        if fields:
            call[kind.lower()] = fields
        return await self.post(call, {"Mesos-Stream-Id": self.stream_id})

    async def post(self, call: Any, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Send a body to the scheduler API."""
        async with asyncio.timeout(DEADLINE_S):
            body = io.BytesIO(encoded(call))
            more = {"Content-Type": "application/json", **(headers or {})}
            async with self.http.post(self.url, data=body, headers=more) as answer:
                return answer.status, await answer.text()

    async def accept(self, offer: Json, *tasks: Json, **fields: Any) -> None:
        """Launch tasks on an offer."""
        operations = [{"type": "LAUNCH", "launch": {"task_infos": tasks}}]
        done = await self.call("ACCEPT", offer_ids=[offer["id"]], operations=operations, **fields)
        assert done == (202, "")

    async def _read(self) -> bool:
        assert self._answer is not None
        try:
            data, _ = await self._answer.content.readchunk()
        except aiohttp.ClientPayloadError:
            return False
        if not data:
            return not self._answer.content.at_eof()
        self.chunks.append(data)
        for each in self._records.read(data):
            event = parse_object(each)
            self.heard.append(event)
            self._events.append(event)
        return True


def gateway(master: MasterDaemon) -> Address:
    """Return the address of a master's gateway."""
    assert master.mesos_address is not None
    return master.mesos_address


def scalar(name: str, value: float) -> Json:
    """Return an amount of a resource."""
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def task(offer: Json, task_id: str, line: str = "true", **more: Any) -> Json:
    """Return a task for an offer's agent."""
    return {
        "task_id": {"value": task_id},
        "name": task_id,
        "agent_id": offer["agent_id"],
        "resources": [scalar("cpus", 0.5), scalar("mem", 32)],
        "command": {"value": line, "shell": True},
        **more,
    }
