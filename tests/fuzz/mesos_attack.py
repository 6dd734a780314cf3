"""Schedulers of Mesos that break rules: streams, and calls beside them, of changed JSON."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from typing import Any, Final

from croupier.net.address import Address
from tests.fuzz.attack import Attack, Problem
from tests.fuzz.cases import Case

MOST_CALLS: Final = 30
_OF_STREAM: Final = ("stream", "framework_id")
CONNECT_S: Final = 20.0
READ_S: Final = 0.1
READ_BYTES: Final = 65_536
# Characters of the largest texts that take the place of a value.
LARGE: Final = 200_000
_ID: Final = {"value": "x"}
_CPUS: Final = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.1}}
_COMMAND: Final = {
    "value": "true",
    "shell": True,
    "arguments": ["a"],
    "environment": {"variables": [{"name": "A", "value": "b"}]},
}
_TASK: Final = {
    "task_id": _ID,
    "name": "t",
    "agent_id": _ID,
    "command": _COMMAND,
    "resources": [
        _CPUS,
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 2}]}},
        {"name": "zones", "type": "SET", "set": {"item": ["a"]}},
    ],
    "labels": {"labels": [{"key": "a", "value": "b"}]},
    "limits": {"mem": {"value": 64}},
    "kill_policy": {"grace_period": {"nanoseconds": 1}},
    "max_completion_time": {"nanoseconds": 10**9},
    "container": {"type": "MESOS", "mesos": {}},
}
_EXECUTOR: Final = {
    "executor_id": {"value": "e"},
    "command": _COMMAND,
    "resources": [_CPUS],
    "shutdown_grace_period": {"nanoseconds": 1},
}
_IN_EXECUTOR: Final = {
    "task_id": _ID,
    "agent_id": _ID,
    "resources": [_CPUS],
    "executor": _EXECUTOR,
    "data": "AAAA",
}
_GROUP: Final = {
    "executor": {"type": "DEFAULT", "executor_id": {"value": "d"}},
    "task_group": {"tasks": [_TASK, _TASK]},
}
_OPERATIONS: Final = (
    {"type": "LAUNCH", "launch": {"task_infos": [_TASK]}},
    {"type": "LAUNCH", "launch": {"task_infos": [_IN_EXECUTOR]}},
    {"type": "LAUNCH_GROUP", "launch_group": _GROUP},
    {"type": "RESERVE", "id": {"value": "o"}, "reserve": {"resources": [_CPUS]}},
    {"type": "UNRESERVE", "id": {"value": "o"}, "unreserve": {"resources": [_CPUS]}},
    {"type": "CREATE", "id": {"value": "o"}, "create": {"volumes": [_CPUS]}},
)
_CALLS: Final[dict[str, Any]] = {
    "ACCEPT": {"offer_ids": [_ID], "operations": [], "filters": {"refuse_seconds": 0.1}},
    "DECLINE": {"offer_ids": [_ID], "filters": {"refuse_seconds": 1}},
    "REVIVE": {"roles": ["*"]},
    "SUPPRESS": {"roles": ["*"]},
    "KILL": {"task_id": _ID, "agent_id": _ID, "kill_policy": {}},
    "ACKNOWLEDGE": {"agent_id": _ID, "task_id": _ID, "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="},
    "RECONCILE": {"tasks": [{"task_id": _ID}]},
    "MESSAGE": {"agent_id": _ID, "executor_id": _ID, "data": "AAAA"},
    "SHUTDOWN": {"executor_id": _ID, "agent_id": _ID},
    "REQUEST": {"requests": []},
    "TEARDOWN": {},
    "SUBSCRIBE": {
        "framework_info": {
            "user": "nobody",
            "name": "fuzz",
            "roles": ["fuzz"],
            "failover_timeout": 1.0,
            "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}],
        }
    },
}
# Calls after which a stream has ended, and all others.
_ENDING: Final = ("SUBSCRIBE", "TEARDOWN")
_GOING_ON: Final = tuple(kind for kind in _CALLS if kind not in _ENDING)
_ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1, 0.0004, -0.5, 1e300, 2**53, 2**63, 2**64, 10**40, "", "x", "*", "a/b",
    "\0", "\ud800", "\u00e9", "Infinity", "NaN", [], {}, [[]], [None], {"value": None},
    {"value": "x"}, ["x", {}], "x" * 5_000,
)  # fmt: skip
_KEYS: Final = ("slave_id", "executor", "health_check", "uris", "credentials", "type", "value")
_PARTS: Final = (b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"\r\n\r\n")


class MesosAttack(Attack):
    """Streams of the gateway of a master."""

    def __init__(self, address: Address, seed: int, token: str = "", party: str = "") -> None:
        super().__init__(f"mesos{party}", seed)
        self._address, self._token = address, token
        self._seen: dict[str, list[str]] = {}

    @property
    def target(self) -> str:
        """The gateway."""
        return "mesos"

    def accepts(self, target: str) -> bool:
        """Return whether the case is for the gateway."""
        return target == self.target

    async def run(self, case: Case) -> None:
        """Subscribe, and make calls on other connections meanwhile."""
        opening = self._request("SUBSCRIBE", is_whole=self.rng.random() < 0.9)
        case.sent.append(opening)
        stream = await self._open(opening)
        try:
            for _ in range(self.rng.randint(1, MOST_CALLS)):
                kind = self.rng.choice(_ENDING if self.rng.random() < 0.03 else _GOING_ON)
                data = self._request(kind)
                case.sent.append(data)
                await self._exchange(data)
                if stream is not None and self.rng.random() < 0.5:
                    self._learn(await self._read(stream[0]))
        finally:
            if stream is not None:
                stream[1].transport.abort()

    async def replay(self, case: Case) -> None:
        """Send the bytes of a case, each on a connection."""
        for data in case.sent:
            await self._exchange(data)

    async def _exchange(self, data: bytes) -> None:
        own = {name: self._seen.get(name, [])[:] for name in _OF_STREAM}
        opened = await self._open(data)
        # Those of another SUBSCRIBE end with it.
        self._seen.update(own)
        if opened is not None:
            opened[1].transport.abort()

    async def _open(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        self.sent += 1
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    self._address.host, self._address.port
                )
        except OSError as error:
            self.answers[type(error).__name__] += 1
            return None
        writer.write(data)
        self._learn(await self._read(reader))
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        answer = b""
        try:
            async with asyncio.timeout(READ_S):
                while len(answer) < READ_BYTES and (more := await reader.read(READ_BYTES)):
                    answer += more
                    if b" 202 " in answer[:20]:
                        break
        except TimeoutError:
            pass
        except OSError:
            self.answers["reset"] += 1
        return answer

    def _learn(self, answer: bytes) -> None:
        """Note the status and the ids of an answer."""
        if status := re.match(rb"HTTP/1\.1 (\d{3})", answer):
            self.answers[status[1].decode()] += 1
            if status[1] == b"500":
                raise Problem("the gateway answered 500")
        if stream := re.search(rb"Mesos-Stream-Id: (\w+)", answer):
            self._seen["stream"] = [stream[1].decode()]
        for name, value in re.findall(rb'"(\w*id)":\{"value":"([^"]{1,255})"\}', answer):
            kept = self._seen.setdefault("offer_id" if name == b"id" else name.decode(), [])
            kept.append(value.decode())
            del kept[:-20]

    def _request(self, kind: str, *, is_whole: bool = False) -> bytes:
        rng = self.rng
        call: Any = {"type": kind, kind.lower(): json.loads(json.dumps(_CALLS[kind]))}
        if kind == "ACCEPT":
            chosen = rng.choices(_OPERATIONS, k=rng.choice((0, 1, 1, 2, 4)))
            call["accept"]["operations"] = json.loads(json.dumps(chosen))
        call = self._filled(call)
        for _ in range(0 if is_whole else rng.choice((0, 0, 1, 2, 5))):
            call[kind.lower()] = self._changed(call[kind.lower()])
        if kind != "SUBSCRIBE" or (rng.random() < 0.3 and "framework_id" in self._seen):
            call["framework_id"] = {"value": self._known("framework_id")}
        if not is_whole and rng.random() < 0.1:
            call = self._changed(call)
        body = json.dumps(call).encode()
        if not is_whole and rng.random() < 0.1:
            body = body[: rng.randrange(len(body) + 1)]
        lines = [
            "POST /api/v1/scheduler HTTP/1.1",
            f"Host: {self._address}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if kind != "SUBSCRIBE" or rng.random() < 0.05:
            known = self._known("stream")
            lines.append(f"Mesos-Stream-Id: {known if rng.random() < 0.95 else 'x' * 32}")
        if self._token:
            basic = base64.b64encode(f"fuzz:{self._token}".encode()).decode()
            lines.append(f"Authorization: Basic {basic}")
        data = "\r\n".join([*lines, "", ""]).encode() + body
        if not is_whole and rng.random() < 0.03:
            at = rng.randrange(len(data))
            data = data[:at] + rng.choice(_PARTS) + data[at:]
        return data

    def _known(self, name: str) -> str:
        """Return an id that the gateway has named."""
        kept = self._seen.get(name)
        if not kept:
            return "none"
        # Of ids of frameworks, the last is that of the stream.
        is_last = name == "framework_id" and self.rng.random() < 0.95
        return kept[-1] if is_last else self.rng.choice(kept)

    def _filled(self, value: Any, name: str = "") -> Any:
        """Return a value with known ids in the place of those of templates."""
        if isinstance(value, dict):
            if value == _ID:
                if name == "task_id" and self.rng.random() < 0.5:
                    return {"value": f"t{self.rng.randrange(10**9)}"}
                return {"value": self._known(name.removesuffix("s"))}
            return {key: self._filled(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, name) for each in value]
        return value

    def _changed(self, value: Any) -> Any:
        """Return a value with one change somewhere."""
        rng = self.rng
        if rng.random() < 0.2 or not isinstance(value, dict | list) or not value:
            return self._odd(rng)
        if isinstance(value, list):
            at = rng.randrange(len(value))
            if rng.random() < 0.2:
                return value * rng.choice((2, 50, 500))
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {**value, rng.choice(_KEYS): self._odd(rng)}
        return {**value, key: self._changed(value[key])}

    @staticmethod
    def _odd(rng: random.Random) -> Any:
        if rng.random() < 0.01:
            return "x" * LARGE
        if rng.random() < 0.01:
            deep: Any = []
            for _ in range(500):
                deep = [deep]
            return deep
        return rng.choice(_ODD)
