"""Previews at a master of a release without holds."""

from __future__ import annotations

from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceServicer
from tests.harness.command import croupier
from tests.harness.operators import ScriptedOperator, serving


class OlderOperator(ScriptedOperator):
    """A master that has no call for holds."""

    ListHolds = OperatorServiceServicer.ListHolds


async def test_a_teardown_is_previewed_at_a_master_without_holds() -> None:
    async with serving(OlderOperator()) as operator:
        info = framework_pb2.FrameworkInfo(framework_id="m-F1", name="train")
        framework = pb.FrameworkView(framework=info, state="connected")
        operator.answers[pb.ListFrameworksRequest] = pb.ListFrameworksResponse(
            frameworks=[framework]
        )
        master = ("--master", operator.address)
        done = await croupier("framework", "teardown", "train", "--dry-run", *master)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("it has no live tasks\n")
