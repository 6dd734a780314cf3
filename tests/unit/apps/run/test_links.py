"""`croupier run` reads output by links that the master signs, where agents require them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from croupier.apps.run import output
from croupier.apps.run.output import Outputs
from croupier.apps.run.output_sources import OutputSources
from croupier.cli.flags import Target
from croupier.cli.printer import Printer
from croupier.model.errors import Unavailable
from croupier.net.credentials import ClientSecurity
from croupier.v1 import operator_pb2 as pb
from tests.harness.certificates import authority
from tests.harness.operators import ScriptedOperator, serving
from tests.harness.task_outputs import TaskOutputs, serving_outputs

NONE = ClientSecurity()


def links_for(*task_ids: str, secret: str = "s1", address: str = "") -> pb.GetOutputLinksResponse:
    answer = pb.GetOutputLinksResponse()
    for task_id in task_ids:
        answer.links.add(
            framework_id="f",
            task_id=task_id,
            stdout=f"/output/f/{task_id}/stdout?expires=9&signature={secret}",
            stderr=f"/output/f/{task_id}/stderr?expires=9&signature={secret}",
            valid_for_ms=60_000,
            http_address=address,
        )
    return answer


class Reading:
    """An agent that requires links, a master that gives them, and a reader."""

    def __init__(self, agent: TaskOutputs, operator: ScriptedOperator, target: Target) -> None:
        self.agent, self.operator = agent, operator
        self.sources = OutputSources(target)
        self.sources.learn("a1", agent.address)
        self.out, self.warnings = io.BytesIO(), list[str]()

    async def read(
        self, *task_ids: str, security: ClientSecurity = NONE, has_agent: bool = True
    ) -> bytes:
        """Print the output of ended tasks, and return what was printed on stdout."""
        printer = Printer(self.out, io.BytesIO(), prefixed=False)
        ways = (self.sources, self.warnings.append, lambda: security)
        async with Outputs(printer, *ways) as outputs:
            for index, task_id in enumerate(task_ids):
                outputs.follow(index, "a1", "f", task_id)
                outputs.on_ended(task_id, has_run=True, has_agent=has_agent)
            async with asyncio.timeout(30):
                await outputs.finished()
        return self.out.getvalue()


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    async with serving_outputs() as agent, serving(ScriptedOperator()) as operator:
        agent.secret = "s1"
        agent.texts["run-0", "stdout"] = b"hello\n"
        yield Reading(agent, operator, Target.parse(operator.address))


async def test_links_are_asked_for_once_an_agent_requires_them(reading: Reading) -> None:
    reading.operator.answers[pb.GetOutputLinksRequest] = links_for("run-0")
    assert await reading.read("run-0") == b"hello\n"
    assert reading.warnings == []
    asked = [each for each in reading.operator.asked if isinstance(each, pb.GetOutputLinksRequest)]
    (task,) = asked[0].tasks
    assert (task.framework_id, task.task_id, task.agent_id) == ("f", "run-0", "a1")
    assert len(asked) == 1


async def test_without_authentication_no_link_is_asked_for(reading: Reading) -> None:
    reading.agent.secret = ""
    assert await reading.read("run-0") == b"hello\n"
    assert not reading.operator.asked
    assert not any("signature" in path for path in reading.agent.asked)


async def test_an_agent_that_has_moved_is_found(reading: Reading) -> None:
    reading.agent.secret = ""
    reading.sources.learn("a1", "127.0.0.1:9")
    moved = links_for("run-0", address=reading.agent.address)
    reading.operator.answers[pb.GetOutputLinksRequest] = moved
    assert await reading.read("run-0") == b"hello\n"
    assert reading.warnings == []
    assert not any("signature" in path for path in reading.agent.asked)


async def test_output_that_was_lost_with_its_agent_is_reported_at_once(reading: Reading) -> None:
    reading.sources.learn("a1", "127.0.0.1:9")
    assert await reading.read("run-0", has_agent=False) == b""
    assert len(reading.warnings) == 2
    assert all(each.endswith("; the agent has left the cluster") for each in reading.warnings)


async def test_a_refused_link_is_renewed(reading: Reading) -> None:
    reading.agent.secret = "s2"
    operator = reading.operator
    operator.answers[pb.GetOutputLinksRequest] = links_for("run-0")

    def on_asked(path: str) -> None:
        if "s1" in path:
            operator.answers[pb.GetOutputLinksRequest] = links_for("run-0", secret="s2")

    reading.agent.on_asked = on_asked
    assert await reading.read("run-0") == b"hello\n"
    assert reading.warnings == []


async def test_a_broken_connection_goes_on_by_a_link(reading: Reading) -> None:
    reading.operator.answers[pb.GetOutputLinksRequest] = links_for("run-0")
    reading.agent.breaks["run-0", "stdout"] = 1
    assert await reading.read("run-0") == b"hello\n"
    assert reading.warnings == []


async def test_output_that_is_not_for_the_caller_is_reported(reading: Reading) -> None:
    assert await reading.read("run-0") == b""
    assert len(reading.warnings) == 2
    assert all("the master gives no link" in each for each in reading.warnings)


async def test_a_master_that_refuses_is_reported(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    reading.operator.answers[pb.GetOutputLinksRequest] = Unavailable("not now")
    assert await reading.read("run-0") == b""
    assert all("may be cut short: not now" in each for each in reading.warnings)


async def test_many_readers_wait_for_few_calls(reading: Reading) -> None:
    task_ids = [f"run-{number}" for number in range(50)]
    reading.operator.answers[pb.GetOutputLinksRequest] = links_for(*task_ids)
    await reading.read(*task_ids)
    asked = [each for each in reading.operator.asked if isinstance(each, pb.GetOutputLinksRequest)]
    assert len(asked) <= 5
    assert reading.warnings == []


@asynccontextmanager
async def serving_tls(agent: TaskOutputs, path: str) -> AsyncIterator[None]:
    """Serve the agent's output over TLS, with the certificate in a directory."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{path}/cert.pem", f"{path}/key.pem")
    app = web.Application()
    app.add_routes([web.get("/output/{framework}/{task}/{stream}", agent.get)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    agent.address = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("role", "is_read"), [("agent/a1", True), ("agent/a2", False), ("client/a1", False)]
)
async def test_only_the_agents_own_certificate_is_accepted(
    reading: Reading,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    is_read: bool,
) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    files = authority().issue(tmp_path_factory.mktemp("tls"), role)
    reading.agent.secret = ""
    async with serving_tls(reading.agent, str(files.cert.parent)):
        reading.sources.learn("a1", reading.agent.address)
        got = await reading.read("run-0", security=ClientSecurity(files.ca))
    assert (got == b"hello\n") == is_read
    if not is_read:
        assert not reading.agent.asked
        assert all(f"the certificate is of {role}, not of agent/a1" in w for w in reading.warnings)


async def test_an_agent_with_tls_needs_authorities_to_trust(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LAST_S", 0.05)
    reading.sources.learn("a1", "https://127.0.0.1:1")
    assert await reading.read("run-0") == b""
    assert all("give --tls-ca" in each for each in reading.warnings)
