"""The fake master of `croupier run`."""

from __future__ import annotations

from croupier.model.task import TaskState
from croupier.sdk.testing import FakeMaster
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import add_OperatorServiceServicer_to_server
from tests.harness.operators import ScriptedOperator
from tests.harness.task_outputs import TaskOutputs


class Master(FakeMaster):
    """A fake master that answers operators too, on the same port."""

    def __init__(self, **more: bool) -> None:
        super().__init__(timeout_s=20.0, **more)
        self.operator = ScriptedOperator()
        add_OperatorServiceServicer_to_server(self.operator, self._server)


async def play(
    master: Master,
    agent: TaskOutputs,
    code: int | None = 0,
    task_id: str = "x-9b5d",
    signal: int | None = None,
) -> None:
    """Report that the task runs, and ends with `code` or by `signal`."""
    await master.update(task_id, TaskState.STARTING)
    await master.update(task_id, TaskState.RUNNING)
    state = TaskState.FAILED if code or signal else TaskState.FINISHED
    await master.update(task_id, state, exit_code=code, signal=signal)


def agents_at(*addresses: str) -> pb.ListAgentsResponse:
    """Return the master's list of agents a1, a2 and so on."""
    return pb.ListAgentsResponse(
        agents=[
            pb.AgentView(
                agent=framework_pb2.AgentDescription(agent_id=f"a{number}", http_address=address),
                state="connected",
            )
            for number, address in enumerate(addresses, start=1)
        ]
    )
