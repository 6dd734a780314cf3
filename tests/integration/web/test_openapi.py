"""The API against its own document: by requests that fit it, and by some that do not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
import schemathesis
from hypothesis import settings
from jsonschema_rs import Draft202012Validator, meta
from schemathesis import Case
from schemathesis.checks import positive_data_acceptance

from croupier.master.web.routes import ROUTES, document
from croupier.net.version import croupier_version
from tests.harness.masters import RawAgent, RawFramework, running_master

EXAMPLES = 4
RAW = document(ROUTES, croupier_version())
# A stream does not end.
api = schemathesis.openapi.from_dict(RAW).exclude(path="/api/v1/watch")


class Served:
    """A master without authentication, with an agent and a framework, in a thread of its own."""

    def __init__(self) -> None:
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._run()])
        self._thread.start()
        assert self._ready.wait(30)

    async def _run(self) -> None:
        async with (
            running_master() as master,
            RawAgent(master.address) as agent,
            RawFramework(master.address) as framework,
        ):
            await agent.register()
            await framework.subscribe()
            self.url = f"http://{master.http_address}"
            self._ready.set()
            await self._end.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    master = Served()
    yield master
    master.stop()


def test_the_document_describes_every_route(served: Served) -> None:
    raw: Any = json.load(urlopen(f"{served.url}/api/v1/openapi.json", timeout=10))
    assert raw == RAW
    described = {(path, method) for path, each in raw["paths"].items() for method in each}
    assert len(described) == len(ROUTES)
    for schema in raw["components"]["schemas"].values():
        meta.validate(schema)
        Draft202012Validator({**schema, "components": raw["components"]})
    operations = [each for path in raw["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)


@api.parametrize()
@settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None)
def test_every_operation_keeps_to_its_document(case: Case[Any], served: Served) -> None:
    # No schema says whether a token of a page, a role's settings, a grace, resources or conditions
    # are valid, nor which parts of a file exclude each other, nor that a time is after another.
    is_open = case.method == "POST" or case.path == "/api/v1/fit"
    is_open |= bool({"page", "tail", "tail_bytes", "until_ms"} & set(case.query or {}))
    excluded = [positive_data_acceptance] if is_open else []
    case.call_and_validate(served.url, excluded_checks=excluded, timeout=10)
