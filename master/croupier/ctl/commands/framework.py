"""`croupier framework`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from croupier.cli.connection import Master, run
from croupier.cli.flags import CHANGE, Change, FrameworkName, YesFlag
from croupier.cli.terminal import View, many, named
from croupier.ctl.app import family
from croupier.ctl.lists import find_framework
from croupier.ctl.operation import confirm, print_result
from croupier.ctl.previews import teardown_preview
from croupier.model.errors import NotFound
from croupier.v1.operator_pb2 import TeardownFrameworkRequest

framework = family("framework")


@framework.command(name="teardown")
def teardown(name: FrameworkName, /, *, yes: YesFlag = False, change: Change = CHANGE) -> None:
    """Remove a framework permanently, and kill its tasks.

    Use this if the framework's program will not come back. Its resources are offered again as its
    tasks end, without waiting for its failover timeout. The master refuses a program that returns
    under this id.
    """

    async def torn_down(leader: Master, given: str) -> tuple[View, str]:
        framework_id, known = given, ""
        with suppress(NotFound):
            # A removed framework is not listed, but the master knows its id.
            found = await find_framework(leader, given)
            framework_id, known = found["framework_id"], found["name"]
        request = TeardownFrameworkRequest(framework_id=framework_id)
        left = (await leader.ask(leader.service.TeardownFramework, request)).tasks
        ending = f"; {many(left, 'task')} of it will end" if left else ""
        view = {"framework_id": framework_id, "tasks_left": left}
        return view, f"framework {named(known, framework_id)} is torn down{ending}"

    preview = partial(teardown_preview, named=name)
    confirmed = confirm(name, preview, change, yes=yes)
    if confirmed is not None:
        view, line = run(change.master, partial(torn_down, given=confirmed))
        print_result(view, line, as_json=change.as_json)
