"""`croupier completion`, in a real bash, zsh and fish."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cyclopts import App

from croupier.cli.flags import Target
from croupier.ctl.app import SUMMARIES, app, load_commands
from croupier.ctl.commands.completion import TIMEOUT_S, _asked, id_lines, table
from croupier.ctl.completion_scripts import SHELLS, script
from croupier.net.address import Address
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1 import operator_pb2 as pb
from tests.harness.debian import KEPT, program
from tests.harness.operators import ScriptedOperator, serving

# What stands before the cursor, and what is completed. `m:1` stands for a master.
CASES: tuple[tuple[list[str], set[str]], ...] = (
    (["dr"], {"drain"}),
    (["agent", ""], {"show", "drain", "deactivate", "reactivate", "gone"}),
    (["agent", "drain", "--gr"], {"--grace"}),
    (["--master", "m:1", "agent", "d"], {"drain", "deactivate"}),
    (["--master=m:1", "agent", "d"], {"drain", "deactivate"}),
    (["tasks", "--state", "RU"], {"RUNNING"}),
    (["tasks", "--older", "5m", "--te"], {"--text"}),
    (["top", "--sort", ""], {"share", "tasks", "offers", "name"}),
    (["nosuch", ""], set()),
    (["tasks", "--older", ""], set()),
    # From a `croupier` that prints ids.
    (["drain", "A1"], {"A1-agents"}),
    (["drain", "A1-agents", "A"], set()),
    (["tasks", "--agent", ""], {"A1-agents"}),
    (["kill", ""], {"A1-tasks"}),
    (["framework", "teardown", ""], {"A1-frameworks"}),
    (["weights", "set", ""], {"A1-roles"}),
    (["--master", "m:1", "kill", ""], {"A1-tasks-m:1"}),
)
PLAIN = "; ".join(f"try {' '.join(repr(word) for word in words)}" for words, _ in CASES)


@pytest.fixture(scope="module")
def words() -> dict[str, list[str]]:
    """Return the words of the command line; they take seconds to make."""
    load_commands()
    return table(app)


@pytest.fixture(scope="module")
def scripts(words: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the script of each shell, and with a `croupier` that prints ids."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / f"croupier.{shell}").write_text(script(shell, words))
    fake = folder / "croupier"
    fake.write_text(
        '#!/bin/sh\necho "$@" >>"$(dirname "$0")/calls"\n'
        '[ "$1" = complete ] || exit 1\necho "A1-$2${5:+-$5}\tnode 1"\n'
    )
    fake.chmod(0o755)
    return folder


def answers(folder: Path, *argv: str) -> list[set[str]]:
    """Run a shell; return the words that each of its lines holds."""
    path = f"{folder}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, cwd=folder)
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


def expected(cases: Sequence[tuple[list[str], set[str]]] = CASES) -> list[set[str]]:
    return [words for _, words in cases]


def test_bash(scripts: Path) -> None:
    shell = shutil.which("bash")
    assert shell is not None
    code = (
        "source ./croupier.bash; compopt() { :; }; "
        'try() { COMP_WORDS=(croupier "$@"); COMP_CWORD=$#; COMPREPLY=(); _croupier;'
        ' echo "${COMPREPLY[*]}"; }; '
    )
    argv = (shell, "--norc", "-c")
    assert answers(scripts, *argv, code + PLAIN) == expected()
    # Bash splits words at `=`.
    assert answers(scripts, *argv, code + "try tasks --state = RU") == [{"RUNNING"}]
    assert answers(scripts, *argv, code + "try tasks --state =") == [
        {each.split("_", 1)[1] for each in task_pb2.TaskState.keys()[1:]}
    ]


def test_zsh(scripts: Path) -> None:
    shell = program("zsh")
    # An unpacked one looks for its modules in /usr.
    modules = " ".join(map(str, KEPT.glob("trees/zsh/usr/lib/*/zsh/*")))
    code = (
        f"module_path+=({modules}); "
        "compdef() { : }; compset() { : }; _files() { : }; compadd() { : };"
        " source ./croupier.zsh;"
        ' try() { words=(croupier "$@"); CURRENT=$#words; found=(); _croupier }; '
        ' compadd() { print -r -- "${found[@]}" }; '
    )
    argv = (str(shell), "-f", "-c")
    assert answers(scripts, *argv, code + PLAIN) == expected()
    assert answers(scripts, *argv, code + "try tasks --state=RU") == [{"RUNNING"}]


def test_fish(scripts: Path) -> None:
    code = "source ./croupier.fish; function try; complete -C (string join -- ' ' croupier $argv)"
    code += " | string replace -r '\\t.*' '' | string join ' '; echo; end; "
    argv = (str(program("fish")), "--no-config", "-c")
    lines = [line for line in answers(scripts, *argv, code + PLAIN) if line]
    assert lines == [words for words in expected() if words]
    (found,) = filter(None, answers(scripts, *argv, code + "try tasks --state=RU"))
    assert found == {"--state=RUNNING"}


def test_no_word_means_anything_to_a_shell(words: dict[str, list[str]]) -> None:
    for lines in words.values():
        for line in lines:
            assert not set(line) & set("'\"\\$`;&|<>*?!{}"), line


async def test_ids_come_from_the_master_and_hostile_ones_are_left_out() -> None:
    async with serving(ScriptedOperator()) as operator:
        operator.answers[pb.ListAgentsRequest] = pb.ListAgentsResponse(
            agents=[
                pb.AgentView(agent=framework_pb2.AgentDescription(agent_id=name, hostname=host))
                for name, host in (("a1", "h$(x)\n"), ("a$(touch x)", ""), ("b1", ""))
            ]
        )
        target = Target.parse(operator.address)
        assert await _asked(target, "agents", "a") == ["a1\thx"]
        assert operator.asked[-1] == pb.ListAgentsRequest(page_size=100, text="a")
        operator.answers[pb.ListTasksRequest] = pb.ListTasksResponse(
            tasks=[
                pb.TaskView(
                    task=task_pb2.TaskInfo(task_id=name), status=task_pb2.TaskStatus(state=state)
                )
                for name, state in (("t1", task_pb2.TASK_FAILED), ("t2", task_pb2.TASK_RUNNING))
            ]
        )
        assert await _asked(target, "tasks", "t") == ["t2\tRUNNING", "t1\tFAILED"]


def test_without_a_master_there_are_no_ids_and_no_error() -> None:
    begun = asyncio.run(_seconds())
    assert id_lines(Target((Address("127.0.0.1", 1),)), "agents", "") == []
    assert asyncio.run(_seconds()) - begun < TIMEOUT_S + 3


async def _seconds() -> float:
    return asyncio.get_running_loop().time()


# The help of the `croupier` command.


def commands(parent: App, path: str = "croupier") -> Iterator[tuple[str, App]]:
    """Yield every command that can be run, with its words."""
    for name in parent:
        if name.startswith("-"):
            continue
        child = parent[name]
        yield f"{path} {name}", child
        yield from commands(child, f"{path} {name}")


load_commands()
COMMANDS = dict(commands(app))


def test_all_commands_are_found() -> None:
    assert {"croupier run", "croupier drain", "croupier weights set"} <= COMMANDS.keys()


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_and_each_of_its_parameters_has_a_help_text(words: str) -> None:
    command = COMMANDS[words]
    assert command.help
    if command.default_command is None:
        return
    arguments = command.assemble_argument_collection(parse_docstring=True)
    assert [each.name for each in arguments if each.show and not each.parameter.help] == []


@pytest.mark.parametrize("name", [name for name, summary in SUMMARIES.items() if summary])
def test_the_table_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    first = COMMANDS[f"croupier {name}"].help.partition("\n")[0]
    assert first == SUMMARIES[name]
