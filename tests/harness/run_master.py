"""The fake master of `croupier run`."""

from __future__ import annotations

from croupier.model.task import TaskState
from croupier.sdk.testing import FakeMaster
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


def links_at(
    address: str, framework_id: str = "fake-1-F1", task_id: str = "x-9b5d"
) -> pb.GetOutputLinksResponse:
    """Return links to the output of a task on the agent at an address; they need no signature."""
    answer = pb.GetOutputLinksResponse()
    path = f"/output/{framework_id}/{task_id}"
    answer.links.add(
        framework_id=framework_id,
        task_id=task_id,
        stdout=f"{path}/stdout",
        stderr=f"{path}/stderr",
        http_address=address,
    )
    return answer
