"""Runs `croupier local` with fake daemons; a program for tests.

    python -m tests.harness.local_cluster WORK_DIR MASTER_PORT STOP_S WHAT...

STOP_S are the seconds after which daemons that do not stop are killed.
WHAT is the behaviour of the agents: `good`, `stubborn` (ignores SIGTERM), `failing` (ends at once)
or `father` (leaves a process behind in its own session). All but `failing` ones register at once.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

from croupier.ctl.commands.local import WorkDir, live
from croupier.ctl.local import cluster as local
from croupier.ctl.local.plan import Daemon, LocalPlan, LocalSpec
from croupier.model.errors import CroupierError
from croupier.model.resources import Resources
from croupier.net.address import Address
from croupier.net.transport import bind, make_server
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server
from tests.harness.operators import ScriptedOperator


def main(argv: list[str]) -> int:
    match argv:
        case ["master", port, *names]:
            return asyncio.run(master(int(port), names))
        case ["agent", behaviour]:
            return agent(behaviour)
        case [work_dir, port, stop_s, *behaviours]:
            local.STOP_S = float(stop_s)
            return cluster(Path(work_dir), int(port), behaviours)
    raise AssertionError(argv)


def cluster(work_dir: Path, port: int, behaviours: list[str]) -> int:
    me = (sys.executable, "-m", "tests.harness.local_cluster")
    names = [f"agent-{number}" for number in range(1, len(behaviours) + 1)]
    registering = [
        name for name, behaviour in zip(names, behaviours, strict=True) if behaviour != "failing"
    ]
    plan = LocalPlan(
        Address("127.0.0.1", port),
        Address("127.0.0.1", 1),
        Daemon("master", (*me, "master", str(port), *registering)),
        tuple(
            Daemon(name, (*me, "agent", behaviour))
            for name, behaviour in zip(names, behaviours, strict=True)
        ),
        (Resources.parse("cpus:1"),) * len(names),
    )
    try:
        return asyncio.run(
            live(plan, LocalSpec(work_dir=work_dir, verbose=True), WorkDir(work_dir))
        )
    except CroupierError as error:
        print(error, file=sys.stderr)
        return 1


async def master(port: int, names: list[str]) -> int:
    operator = ScriptedOperator()
    agents = [
        pb.AgentView(agent=framework_pb2.AgentDescription(hostname=name), state="connected")
        for name in names
    ]
    operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(agents=agents)
    server = make_server()
    add_OperatorServiceServicer_to_server(operator, server)
    bind(server, Address("127.0.0.1", port))
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop(None)
    print("master stopped", file=sys.stderr)
    return 0


def agent(behaviour: str) -> int:
    if behaviour == "failing":
        print("no such flag", file=sys.stderr)
        return 2
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif behaviour == "father":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("agent up", file=sys.stderr, flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
