"""Commands that list agents, frameworks, tasks, offers, holds, volumes and roles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag, WideFlag
from croupier.ctl.app import SUMMARIES, app
from croupier.ctl.lists import print_list
from croupier.ctl.views.hold import VOLUMES
from croupier.ctl.views.task import task_table
from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.model.suggestions import unknown_word
from croupier.model.task import TaskState
from croupier.process.cli import read_by


def _words(_: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Read `A,B`, which may be given several times."""
    return tuple(word for token in tokens for word in token.value.split(",") if word)


StatesFlag = Annotated[tuple[str, ...], Parameter(name="--state", negative="", converter=_words)]
TextFlag = Annotated[str, Parameter(help="List only those with this text in an id, name or role.")]
SpanFlag = Annotated[float | None, read_by(parse_duration)]


@app.command
def agents(
    *,
    state: StatesFlag = (),
    text: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
    wide: WideFlag = False,
) -> None:
    """List agents: state, tasks, and resources used, offered and in total.

    Args:
        state: Only agents in one of these states: connected, suspect, disconnected, unreachable,
            draining, drained, deactivated, unhealthy.
        text: Only agents with this text in their id or hostname.
    """
    print_list(master, "agents", as_json=as_json, wide=wide, states=state, text=text)


def _add(name: str) -> None:
    @app.command(name=name, help=SUMMARIES[name])
    def listing(
        *,
        text: TextFlag = "",
        master: MasterFlag = LOCAL,
        as_json: JsonListFlag = False,
        wide: WideFlag = False,
    ) -> None:
        print_list(master, name, as_json=as_json, wide=wide, text=text)


for _name in ("frameworks", "holds", "offers", "reservations", "roles"):
    _add(_name)


@app.command
def volumes(
    *,
    text: TextFlag = "",
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
    wide: WideFlag = False,
) -> None:
    """List the volumes of agents, and orphans: directories without a hold.

    `croupier hold release` removes either. BOUND is `kernel` where the agent's file system keeps
    the files of a volume to its size.
    """
    print_list(master, "holds", VOLUMES, as_json=as_json, wide=wide, text=text, volumes=True)


@app.command
def tasks(
    *,
    framework: str = "",
    state: StatesFlag = (),
    role: str = "",
    agent: str = "",
    older: SpanFlag = None,
    younger: SpanFlag = None,
    text: Annotated[str, Parameter(name=("--text", "--name"))] = "",
    commands: Annotated[bool, Parameter(negative="")] = False,
    eta: Annotated[bool, Parameter(negative="")] = False,
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
    wide: WideFlag = False,
) -> None:
    """List tasks that run or have ended recently.

    The age of a task counts from its arrival at the master; after a failover, from the start of its
    process, or from its recovery by the new leader if it has none. A task must pass all filters.

    Args:
        framework: Only the tasks of the framework of this id, or of this name if only one has it.
        state: Only tasks in one of these states, such as RUNNING,QUEUED.
        role: Only tasks of this role and of those below it.
        agent: Only tasks of the agent of this id or hostname.
        older: Only tasks that are older than this, such as 10m or 1h30m.
        younger: Only tasks that are younger than this.
        text: Only tasks with this text in their id or name.
        commands: Show the command of each task. Without this flag `command`, `shell` and `labels`
            are null in the JSON list.
        eta: Show in how long queued tasks are expected to start, and by when they do in 9 of 10
            rehearsals. The first 200 of each page of 5,000 tasks are foretold. `croupier why
            FRAMEWORK --task TASK` tells why a time is unknown, and so does the JSON list.
    """
    print_list(
        master,
        "tasks",
        task_table(commands=commands, eta=eta),
        framework=framework,
        as_json=as_json,
        wide=wide,
        states=_state_numbers(state),
        role=role,
        agent=agent,
        min_age_ms=None if older is None else round(older * 1000),
        max_age_ms=None if younger is None else round(younger * 1000),
        text=text,
        with_commands=commands,
        with_forecasts=eta,
    )


def _state_numbers(words: Iterable[str]) -> list[int]:
    """Return the states of these names; case and the prefix `TASK_` do not matter."""
    known = {state.name: state.value for state in TaskState}
    numbers = []
    for word in words:
        name = word.upper().removeprefix("TASK_")
        if name not in known:
            raise InvalidRequest(f"--state: {unknown_word('state', word, known)}")
        numbers.append(known[name])
    return numbers
