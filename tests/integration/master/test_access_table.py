"""Every call of every service, by every kind of caller: the expected result from one table.

The table is independent of the master's own requirements. A new call without a row fails the test.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.master.core.access_records import TokenId, TokenKind
from croupier.master.services import task_files
from croupier.model.access import Action
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity, make_token
from croupier.net.transport import make_channel
from croupier.process.tls.flags import TlsFlags
from croupier.v1 import (
    access_pb2,
    agent_pb2,
    exec_pb2,
    framework_pb2,
    operator_pb2,
    resources_pb2,
    task_pb2,
)
from tests.harness.certificates import HOUR, Authority, PemFiles, authority
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework
from tests.harness.secured import SecuredMaster, bearing, secured_master
from tests.unit.master.test_requirements import all_methods

# Callers with a valid credential. `plain` has no rule, and `other` owns another framework.
CALLERS = ["admin", "operator", "viewer", "plain", "agent", "owner", "other", "join"]
# O: OK. D: PERMISSION_DENIED. N: NOT_FOUND. I: INVALID_ARGUMENT. X: allowed, and UNAVAILABLE since
# the agent serves nothing. C: allowed, and FAILED_PRECONDITION since the agent runs no commands, or
# has no room. A number: OK with so many items.
TABLE = """
                                   admin operator viewer plain agent owner other join
FrameworkService/Connect             O      D       D     D     D     O     O    D
AgentService/Join                    D      D       D     D     D     D     D    O
OperatorService/GetMaster            O      O       O     O     O     O     O    D
OperatorService/ListMasters          O      O       O     O     O     O     O    D
OperatorService/ListAgents           1      1       1     0     0     0     0    D
OperatorService/ListFrameworks       2      2       2     0     0     1     1    D
OperatorService/ListRoles            2      2       2     0     0     0     0    D
OperatorService/ListOffers           1      1       1     0     0     0     1    D
OperatorService/ListTasks            1      1       1     0     0     1     0    D
OperatorService/ListHolds            1      1       1     0     0     1     0    D
OperatorService/CreateHold           C      C       D     D     D     D     D    D
OperatorService/ReleaseHold          N      N       N     N     N     N     N    D
OperatorService/ListReservations     O      O       O     O     O     O     O    D
OperatorService/CreateReservation    C      C       D     D     D     D     D    D
OperatorService/DeleteReservation    N      N       N     N     N     N     N    D
OperatorService/Explain              O      O       O     N     N     O     N    D
OperatorService/Fit                  O      O       O     D     D     O     O    D
OperatorService/GetOutputLinks       1      1       0     0     0     1     0    D
OperatorService/ListTaskFiles        X      X       D     N     N     X     N    D
OperatorService/ReadTaskFile         X      X       D     N     N     X     N    D
OperatorService/GetTaskUse           X      X       D     N     N     X     N    D
OperatorService/ExecTask             C      D       D     N     N     C     N    D
OperatorService/WatchEvents          O      O       O     O     O     O     O    D
OperatorService/GetOverview          O      O       O     O     O     O     O    D
OperatorService/GetHeatmap           O      O       O     O     O     O     O    D
OperatorService/GetHistory           O      O       O     O     O     O     O    D
OperatorService/GetUsage             O      O       O     O     O     O     O    D
OperatorService/KillTask             O      O       D     N     N     O     N    D
OperatorService/TeardownFramework    O      O       D     N     N     O     N    D
OperatorService/UpdateRoles          O      O       D     D     D     D     D    D
OperatorService/DeactivateAgent      O      O       D     D     D     D     D    D
OperatorService/DrainAgent           O      O       D     D     D     D     D    D
OperatorService/ReactivateAgent      O      O       D     D     D     D     D    D
OperatorService/MarkAgentGone        N      N       D     D     D     D     D    D
AccessService/WhoAmI                 O      O       O     O     O     O     O    D
AccessService/CheckAccess            O      O       O     O     O     O     O    D
AccessService/GetPolicy              3      D       D     D     D     D     D    D
AccessService/UpdatePolicy           O      D       D     D     D     D     D    D
AccessService/ListTokens             O      D       D     D     D     D     D    D
AccessService/CreateToken            O      D       D     D     D     D     D    D
AccessService/RevokeToken            O      D       D     D     D     D     D    D
AgentService/Connect                 D      D       D     D     O     D     D    D
AgentService/Exec                    D      D       D     D     N     D     D    D
"""
ROWS = {row.split()[0]: row.split()[1:] for row in TABLE.strip().splitlines()[1:]}
assert TABLE.split()[: len(CALLERS)] == CALLERS
# Callers without a valid credential: every call is UNAUTHENTICATED.
INVALID = ["none", "malformed", "unknown", "wrong", "expired", "revoked"]
_LETTERS = {
    grpc.StatusCode.PERMISSION_DENIED: "D",
    grpc.StatusCode.NOT_FOUND: "N",
    grpc.StatusCode.INVALID_ARGUMENT: "I",
    grpc.StatusCode.UNAUTHENTICATED: "U",
    grpc.StatusCode.UNAVAILABLE: "X",
    grpc.StatusCode.FAILED_PRECONDITION: "C",
}
_NAMING_A_FRAMEWORK = (
    "GetTaskUse",
    "TaskFile",
    "TaskFiles",
    "/Explain",
    "/ExecTask",
    "/KillTask",
    "/TeardownFramework",
    "Agent",
    "/CreateHold",
)
LATER_MS = time.time_ns() // 10**6 + 3_600_000
_REQUESTS = {
    "Fit": operator_pb2.FitRequest(unit=resources_pb2.Resources(cpus_milli=1000), role="ads"),
    "CreateHold": operator_pb2.CreateHoldRequest(
        agent="a1", role="ads", resources=resources_pb2.Resources(cpus_milli=1_000_000)
    ),
    "ReleaseHold": operator_pb2.ReleaseHoldRequest(hold_id="missing"),
    "CreateReservation": operator_pb2.CreateReservationRequest(
        role="ads", agents=10, begin_time_ms=LATER_MS, end_time_ms=LATER_MS + 1
    ),
    "DeleteReservation": operator_pb2.DeleteReservationRequest(reservation_id="missing"),
    "MarkAgentGone": operator_pb2.MarkAgentGoneRequest(agent="missing"),
}
_ids = (f"{number:08x}" for number in count(0xA0000000))


class Scene:
    """A master with an agent, a framework of `owner` with a task, and one of `other`."""

    def __init__(self, secured: SecuredMaster) -> None:
        self.secured = secured
        self.framework = self.task = ""

    @classmethod
    @asynccontextmanager
    async def begun(cls, secured: SecuredMaster) -> AsyncIterator[Scene]:
        scene = cls(secured)
        for group in ("operator", "viewer"):
            secured.join(group, f"client/{group}")
        for name in ("owner", "other"):
            secured.allow(f"client/{name}", [Action.REGISTER, Action.RUN_AS], "*")
        secured.allow("client/owner", [Action.RUN_AS], "user:*")
        address = secured.master.address
        agent = bearing(secured.token_for("agent/a1", TokenKind.AGENT))
        owner, other = (bearing(secured.token_for(f"client/{name}")) for name in ("owner", "other"))
        async with (
            RawAgent(address, agent) as host,
            RawFramework(address, owner) as framework,
            RawFramework(address, other) as another,
        ):
            await host.register(agent_id="a1", http_address="http://127.0.0.1:1")
            await framework.subscribe(roles=["ads"])
            scene.framework, scene.task = framework.framework_id, "t1"
            offer = await framework.offer()
            task = task_pb2.TaskInfo(
                task_id="t1", command=task_pb2.Command(shell="true"), resources=offer.resources
            )
            task.resources.cpus_milli = 1000
            task.resources.mem_milli = 100_000
            launch = framework_pb2.Operation(launch=framework_pb2.Launch(tasks=[task]))
            held = resources_pb2.Resources(cpus_milli=500)
            hold = framework_pb2.Operation(hold=framework_pb2.Hold(hold_id="h1", resources=held))
            verdict = await framework.call(
                accept={"offer_ids": [offer.offer_id], "operations": [launch, hold]}
            )
            assert not verdict.HasField("error"), verdict
            assert not verdict.operations[0].HasField("error"), verdict
            await another.subscribe(roles=["web"])
            await another.offer()
            yield scene

    async def request(self, method: str) -> Any:
        """Return a request; it can be sent again and again."""
        match method.rpartition("/")[2]:
            case "Join":
                token = make_token()
                return agent_pb2.JoinRequest(
                    agent_id=f"joined-{token.token_id}",
                    token_id=token.token_id,
                    token_hash=token.hash,
                )
            case "Explain":
                return operator_pb2.ExplainRequest(framework_id=self.framework)
            case "GetOutputLinks":
                task = operator_pb2.GetOutputLinksRequest.Task(
                    framework_id=self.framework, task_id="t1"
                )
                return operator_pb2.GetOutputLinksRequest(tasks=[task])
            case "KillTask" | "ListTaskFiles" | "ReadTaskFile" | "GetTaskUse" as name:
                more = {"path": "stdout"} if name == "ReadTaskFile" else {}
                request = getattr(operator_pb2, f"{name}Request")
                return request(framework_id=self.framework, task_id="t1", **more)
            case "TeardownFramework":
                return operator_pb2.TeardownFrameworkRequest(framework_id=await self._doomed())
            case "UpdateRoles":
                change = operator_pb2.RoleChange(role="ads")
                return operator_pb2.UpdateRolesRequest(changes=[change], dry_run=True)
            case name if name in _REQUESTS:
                return _REQUESTS[name]
            case "DeactivateAgent" | "DrainAgent" | "ReactivateAgent" as name:
                return getattr(operator_pb2, f"{name}Request")(agent="a1")
            case "CheckAccess":
                return access_pb2.CheckAccessRequest(action="view", object="cluster")
            case "UpdatePolicy":
                rule = access_pb2.Rule(name="new", subject="client/x", actions=["view"], object="*")
                changed = access_pb2.PolicyChange(set_rule=rule)
                return access_pb2.UpdatePolicyRequest(changes=[changed], dry_run=True)
            case "CreateToken":
                wire = access_pb2.Token(
                    token_id=next(_ids), kind=access_pb2.TOKEN_KIND_CLIENT, principal="client/x"
                )
                return access_pb2.CreateTokenRequest(token=wire, token_hash=b"0" * 32)
            case "RevokeToken":
                token_id = self.secured.token_for("client/x").token_id
                return access_pb2.RevokeTokenRequest(token_id=token_id)
            case name:
                service = operator_pb2 if "Operator" in method else access_pb2
                return getattr(service, f"{name}Request")()

    async def _doomed(self) -> str:
        """Return a new framework of `owner` in the role ads."""
        token = bearing(self.secured.token_for("client/owner"))
        async with RawFramework(self.secured.master.address, token) as framework:
            await framework.subscribe(roles=["ads"])
            return framework.framework_id


def stub_of(channel: grpc.aio.Channel, method: str) -> Any:
    """Return the method of a stub for its name, such as `AccessService/WhoAmI`."""
    service, _, name = method.partition("/")
    module = importlib.import_module(
        f"croupier.v1.{service.removesuffix('Service').lower()}_pb2_grpc"
    )
    return getattr(getattr(module, f"{service}Stub")(channel), name)


async def result_of(scene: Scene, channel: grpc.aio.Channel, method: str) -> str:
    """Make the call and return its letter, or its number of items."""
    for _ in range(3):
        # gRPC's client reports INTERNAL if a stream is refused while it writes the first message.
        result = await _result_of(scene, channel, method)
        if result != grpc.StatusCode.INTERNAL.name:
            break
    return result


async def _result_of(scene: Scene, channel: grpc.aio.Channel, method: str) -> str:
    try:
        async with asyncio.timeout(30):
            if method.endswith(("/Connect", "/Exec", "/ExecTask")):
                return await _stream_result(scene, channel, method)
            answer = stub_of(channel, method)(await scene.request(method))
            answer = await (answer.read() if hasattr(answer, "read") else answer)
    except grpc.aio.AioRpcError as error:
        return _LETTERS.get(error.code(), error.code().name)
    for field in ("agents", "frameworks", "roles", "offers", "tasks", "holds", "links", "groups"):
        if method.split("/")[1].startswith(("List", "GetOutput", "GetPolicy")) and hasattr(
            answer, field
        ):
            return str(len(getattr(answer, field)))
    return "O"


async def _stream_result(scene: Scene, channel: grpc.aio.Channel, method: str) -> str:
    """Introduce a peer, and return O once the master accepts it."""
    stream = stub_of(channel, method)()
    request: Any
    if method.endswith("/Exec"):
        request = agent_pb2.AgentServiceExecRequest(exec_id="x")
    elif method.endswith("/ExecTask"):
        command = exec_pb2.ExecCommand(argv=["true"])
        start = exec_pb2.ExecStart(framework_id=scene.framework, task_id="t1", command=command)
        request = operator_pb2.ExecTaskRequest(start=start)
    elif method.startswith("Agent"):
        resources = resources_pb2.Resources(cpus_milli=1000, mem_milli=1_000_000)
        register = agent_pb2.Register(agent_id="a2", hostname="a2", resources=resources)
        request = agent_pb2.AgentServiceConnectRequest(
            reports=[agent_pb2.Report(register=register)]
        )
    else:
        info = framework_pb2.FrameworkInfo(name="x", roles=["other"])
        subscribe = framework_pb2.Subscribe(framework=info, client_id="x", suppressed=True)
        request = framework_pb2.FrameworkServiceConnectRequest(
            calls=[framework_pb2.Call(subscribe=subscribe)]
        )
    try:
        # If the stream has ended already, its status is not that of the write.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.write(request)
        answer = await stream.read()
        if answer is grpc.aio.EOF:
            code: Any = await stream.code()
            return str(_LETTERS.get(code, code.name))
        return "O" if "registered" in str(answer) or "subscribed" in str(answer) else str(answer)
    finally:
        stream.cancel()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up an agent at once."""
    monkeypatch.setattr(task_files, "PATIENCE_S", 0.0)


async def test_every_call_by_every_caller(tmp_path: Path) -> None:
    assert {f"/croupier.v1.{method}" for method in ROWS} == all_methods()
    async with secured_master(tmp_path) as secured, Scene.begun(secured) as scene:
        credentials = {
            "admin": bearing(secured.admin),
            "join": bearing(secured.token_for("", TokenKind.JOIN)),
            "agent": bearing(secured.token_for("agent/a2", TokenKind.AGENT)),
            **{
                name: bearing(secured.token_for(f"client/{name}"))
                for name in ("operator", "viewer", "plain", "owner", "other")
            },
        }
        found = await table(scene, credentials)
    expected = {
        (method, caller): letter
        for method, letters in ROWS.items()
        for caller, letter in zip(CALLERS, letters, strict=True)
    }
    assert found.keys() == expected.keys()
    holes = {key: (letter, found[key]) for key, letter in expected.items() if found[key] != letter}
    assert holes == {}


async def test_every_call_without_a_valid_credential(tmp_path: Path) -> None:
    async with secured_master(tmp_path) as secured, Scene.begun(secured) as scene:
        valid = secured.token_for("client/operator")
        expired = secured.token_for("client/operator", expires_ms=1)
        revoked = secured.token_for("client/operator")
        secured.state.tokens.remove(TokenId(revoked.token_id))
        credentials: dict[str, ClientSecurity | None] = {
            "none": None,
            "malformed": bearing("crp_zzz"),
            "unknown": bearing(make_token()),
            "wrong": bearing(f"crp_{valid.token_id}_{make_token().secret}"),
            "expired": bearing(expired),
            "revoked": bearing(revoked),
        }
        assert list(credentials) == INVALID
        found = await table(scene, credentials)
    assert set(found.values()) == {"U"}
    assert len(found) == len(ROWS) * len(INVALID)


async def test_every_call_with_certificates(tmp_path: Path) -> None:
    def issued(name: str, role: str, **more: Any) -> PemFiles:
        return authority().issue(tmp_path / name, role, **more)

    def client(files: PemFiles, token: str = "") -> ClientSecurity:
        return ClientSecurity(files.ca, files.cert, files.key, token=token)

    own = issued("master", "master/m1")
    tls = TlsFlags(tls_cert=own.cert, tls_key=own.key, tls_ca=own.ca)
    async with secured_master(tmp_path, tls=tls, token_listen=ANY_PORT) as secured:
        scene = Scene(secured)
        secured.join("operator", "client/operator")
        plain = issued("plain", "client/plain")
        operator = secured.token_for("client/operator").text
        credentials = {
            "admin": client(issued("admin", "client/admin")),
            "plain": client(plain),
            "agent": client(issued("agent", "agent/a2")),
            # The token decides, beside a certificate and without one.
            "operator": client(plain, operator),
            "foreign": client(issued("foreign", "client/admin", cluster="elsewhere")),
            "master": client(issued("other-master", "master/m2")),
            "bad token": client(issued("admin2", "client/admin"), make_token().text),
        }
        # No framework is registered, so only calls that name none.
        methods = [each for each in ROWS if not each.endswith(_NAMING_A_FRAMEWORK)]
        found = await table(scene, credentials, methods)
        for method in methods:
            results = {name: found[method, name] for name in credentials}
            assert (results.pop("foreign"), results.pop("bad token")) == ("U", "U"), method
            expected = dict(zip(CALLERS, ROWS[method], strict=True))
            letters = {**expected, "master": expected["plain"]}
            for name, result in results.items():
                assert _kind(result) == _kind(letters[name]), (method, name)
        # Without a certificate there is the other listener.
        assert secured.master.token_address is not None
        trusting = ClientSecurity(own.ca)
        without = {"none": trusting, "operator": ClientSecurity(own.ca, token=operator)}
        found = await table(scene, without, methods, secured.master.token_address)
        for method in methods:
            expected = dict(zip(CALLERS, ROWS[method], strict=True))
            assert found[method, "none"] == "U"
            assert _kind(found[method, "operator"]) == _kind(expected["operator"]), method
        # TLS itself refuses these, for every call.
        past = (-2 * HOUR, -HOUR)
        forged = Authority().issue(tmp_path / "forged", "client/admin", trusting=authority().pem)
        refused = {
            "none": trusting,
            "expired": client(issued("expired", "client/admin", valid=past)),
            "forged": client(forged),
        }
        found = await table(scene, refused, ["AccessService/WhoAmI"])
        assert set(found.values()) == {"X"}


def _kind(letter: str) -> str:
    """Return the letter; a number of items is an OK."""
    return "O" if letter.isdigit() else letter


async def table(
    scene: Scene,
    credentials: dict[str, Any],
    methods: Iterable[str] = tuple(ROWS),
    address: Address | None = None,
) -> dict[tuple[str, str], str]:
    """Return the result of every call by every caller, in the order of the rows."""
    found: dict[tuple[str, str], str] = {}
    async with AsyncExitStack() as stack:
        at = address or scene.secured.master.address
        channels = {
            name: await stack.enter_async_context(make_channel(at, security))
            for name, security in credentials.items()
        }
        for method in methods:
            for name, channel in channels.items():
                found[method, name] = await result_of(scene, channel, method)
    return found
