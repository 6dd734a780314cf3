"""Tables fit the width of a terminal without cutting ids and titles."""

from __future__ import annotations

import io
from typing import Any

import pytest

from croupier.api.objects import as_object
from croupier.cli.table import Column, Drawn, Table, bold, drawn_lines, lines_of, print_table
from croupier.cli.terminal import View
from croupier.ctl.views.agent import AGENTS
from croupier.ctl.views.task import TASKS
from croupier.model.resources import Resources
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire

AGENT_ID = "Af32e0bd186d89c86"
FRAMEWORK_ID = "0c1945b2d03f4f3a-F12"
AMOUNT = resources_to_wire(Resources.parse("cpus:1.5;mem:1500MB;disk:20GB;ports:[31000-31500]"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _drawn(title: str, cells: list[str], **more: Any) -> Drawn:
    return Drawn(Column(title, str, **more), cells)


def shown(table: Table, view: View, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    print_table(table, [view, view], out)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("own_id", "name", "shown"),
    [("a1b2-3-F12", "train", "train"), ("a1b2-3-F12", "", "3-F12"), ("own", "", "own")],
)
def test_forty_columns_name_the_framework_of_a_task(own_id: str, name: str, shown: str) -> None:
    task = pb.TaskView(framework_id=own_id, framework_name=name, agent_id=AGENT_ID, role="ads")
    task.task.task_id = "run-0"
    task.status.state = task_pb2.TASK_RUNNING
    titles, line, *_ = lines_of(TASKS, [as_object(task)], 40)
    assert titles.split()[:3] == ["TASK", "FRAMEWORK", "STATE"]
    assert line.split()[:3] == ["run-0", shown, "RUNNING"]
    assert lines_of(TASKS, [as_object(task)], None)[1].split()[-2:] == [own_id, AGENT_ID]


def test_eighty_columns_are_enough_for_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = framework_pb2.AgentDescription(agent_id=AGENT_ID, hostname="node-17.rack3.example")
    view = as_object(
        pb.AgentView(agent=agent, state="connected", total=AMOUNT, used=AMOUNT, offered=AMOUNT)
    )
    lines = shown(AGENTS, view, monkeypatch)
    assert all(len(line) <= 80 for line in lines)
    titles = ["HOST", "AGENT", "STATE", "TASKS", "USED", "TOTAL", "CONNECTED"]
    assert lines[0].split() == titles
    assert lines[1].split()[1] == lines[2].split()[1] == "Af32e0b"
    assert lines[3:] == [
        "(OFFERED, ATTRIBUTES, ISOLATION: in a wider terminal, a pipe, or with --json)"
    ]


def test_eighty_columns_are_enough_for_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    info = task_pb2.TaskInfo(task_id="train-0017", name="a long name of a task", resources=AMOUNT)
    view = as_object(
        pb.TaskView(
            framework_id=FRAMEWORK_ID,
            framework_name="train",
            agent_id=AGENT_ID,
            role="research/vision",
            task=info,
            status=task_pb2.TaskStatus(state=task_pb2.TASK_RUNNING),
        )
    )
    lines = shown(TASKS, view, monkeypatch)
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split()[0] == "train-0017"
    assert " train " in lines[1]
    assert "STATE" in lines[0]


def test_ids_are_never_cut() -> None:
    columns = [_drawn("TASK", ["t" * 60], is_id=True), _drawn("FRAMEWORK", ["f" * 60], is_id=True)]
    assert drawn_lines(columns, 80)[1] == "t" * 60 + "  " + "f" * 60


def test_text_is_cut_with_an_ellipsis_the_widest_first() -> None:
    columns = [_drawn("A", ["a" * 30]), _drawn("B", ["b" * 50]), _drawn("N", ["7"], is_number=True)]
    titles, line = drawn_lines(columns, 60)
    assert len(line) == 60
    assert line.endswith("…  7")
    assert titles.split() == ["A", "B", "N"]
    assert line.startswith("a" * 26)


def test_wide_characters_count_twice() -> None:
    columns = [_drawn("NAME", ["\u6f22" * 10]), _drawn("N", ["1"], is_number=True)]
    (_, line) = drawn_lines(columns, 15)
    assert line == "\u6f22" * 5 + "…" + "   1"


@pytest.mark.parametrize("width", range(1, 100, 7))
def test_any_width_works(width: int) -> None:
    columns = [
        _drawn("ID", ["x" * 20], is_id=True),
        _drawn("TEXT", ["y" * 40], rank=1),
        _drawn("MORE", ["z" * 15], rank=2),
    ]
    lines = drawn_lines(columns, width)
    assert lines[1].startswith("x" * 20)
    assert len(lines[1]) <= max(width, 20)


def test_combining_marks_take_no_column() -> None:
    columns = [_drawn("NAME", ["e\u0301" * 9, "x" * 9]), _drawn("N", ["1", "2"], is_number=True)]
    _, marked, plain = drawn_lines(columns, 80)
    assert marked == "e\u0301" * 9 + "  1"
    assert plain == "x" * 9 + "  2"


def test_a_pipe_is_never_cut_and_its_columns_are_aligned() -> None:
    columns = [_drawn("NAME", ["\u6f22" * 50, "x"], rank=9), _drawn("N", ["1", "2"])]
    titles, wide, narrow = drawn_lines(columns, None)
    assert titles == "NAME" + " " * 98 + "N"
    assert wide == "\u6f22" * 50 + "  1"
    assert narrow == "x" + " " * 101 + "2"


def test_text_is_cut_further_before_a_line_is_too_long() -> None:
    columns = [_drawn("ID", ["i" * 20], is_id=True), _drawn("HOST", ["h" * 30])]
    assert drawn_lines(columns, 28)[1] == "i" * 20 + "  " + "h" * 5 + "…"


def test_the_columns_left_out_are_named_within_the_width() -> None:
    columns = [
        _drawn("ID", ["x" * 20], is_id=True),
        *(_drawn(f"COLUMN-{n}", ["y" * 40], rank=n) for n in range(1, 9)),
    ]
    lines = drawn_lines(columns, 40)
    assert len(lines) > 3
    assert all(len(line) <= 40 for line in lines)


def test_a_wide_table_is_not_cut_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    agent = framework_pb2.AgentDescription(agent_id=AGENT_ID, hostname="node-17.rack3.example")
    view = as_object(
        pb.AgentView(agent=agent, state="connected", total=AMOUNT, used=AMOUNT, offered=AMOUNT)
    )
    out = Terminal()
    print_table(AGENTS, [view], out, wide=True)
    assert "node-17.rack3.example" in out.getvalue()
    assert "ISOLATION" in out.getvalue()


def test_no_colours_without_a_terminal_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert bold("x") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert bold("x") == "x"
