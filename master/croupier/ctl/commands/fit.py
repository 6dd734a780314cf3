"""`croupier fit`: what could start now."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.api.objects import as_object
from croupier.cli.flags import LOCAL, JsonFlag, MasterFlag
from croupier.ctl.app import app
from croupier.ctl.operation import ask, print_result
from croupier.ctl.views.fit import fit_lines
from croupier.model.attributes import parse_constraint
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.model.scalar import check_unit, parse_scalar
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import constraint_to_wire, resources_to_wire


@app.command
def fit(
    *,
    cpus: str = "1",
    mem: str = "128MB",
    disk: str = "0",
    gpus: str = "0",
    resource: Annotated[list[str] | None, Parameter(negative="")] = None,
    constraint: Annotated[list[str] | None, Parameter(negative="")] = None,
    role: str = "",
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Count how many tasks of a shape could start now, and what would have to end for more.

    It counts for a new framework that comes first: free resources, limits, holds and reservations
    count, the shares of others do not. For one more task it names the agent on which the fewest
    tasks would have to end, the newest first. Nothing is changed or reserved.

    Args:
        cpus: CPUs of each task; may be a fraction, such as 0.1. This and the other resources are as
            of croupier run.
        mem: Memory of each task, such as 64GB.
        disk: Disk of each task, such as 1GB.
        gpus: GPUs of each task.
        resource: NAME:AMOUNT: another resource of each task, such as ports:2. May be repeated.
        constraint: ATTRIBUTE OPERATOR VALUE: a condition on agents, such as "rack equals r1". May
            be repeated.
        role: The role of the tasks, whose limits and holds count. Default: none.
        count: The number of tasks that should fit. If they do, nothing is said about one more.
    """
    amounts = {"cpus": cpus, "mem": mem, "disk": disk, "gpus": gpus}
    unit = Resources({n: parse_scalar(n, check_unit(n, text)) for n, text in amounts.items()})
    for text in resource or ():
        unit = unit + Resources.parse(text)
    if not unit:
        raise InvalidRequest("a task needs resources: give it --cpus or --mem")
    if count is not None and count < 1:
        raise InvalidRequest(f"--count must be 1 or more, not {count}")
    request = pb.FitRequest(
        unit=resources_to_wire(unit),
        constraints=[constraint_to_wire(parse_constraint(text)) for text in constraint or ()],
        role=role,
    )
    found = as_object(ask(master, "Fit", request))
    print_result(found, *fit_lines(found, str(unit), role, count), as_json=as_json)
