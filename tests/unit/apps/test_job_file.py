"""Job files: what is read from TOML and YAML, and the error of each mistake."""

from __future__ import annotations

import re
from pathlib import Path
from signal import SIGUSR2

import pytest

from croupier.apps.job_file.section import Section, read_job_file, section_of_text
from croupier.apps.job_file.task_spec import DEFAULT_TASK, Backoff, TaskSpec, read_task
from croupier.model.attributes import parse_constraint
from croupier.model.errors import InvalidRequest
from croupier.model.preemption import TaskPreemption
from croupier.sdk import Resources, enforces, equals, exists, matches, not_exists

WHOLE = """
command = ["echo", "{i}"]
resources = {cpus = 0.5, mem = "1GB", ports = 2}
limits = {mem = "2GB", pids = 100}
env = {A = "b", N = 3}
user = "nobody"
image = "docker://debian:12"
namespaces = true
network = false
timeout = "1h30m"
grace = 5
constraints = ["rack equals r1", "gpu exists"]
retries = 3
backoff = {initial = "10s", factor = 3, max = "2m", jitter = 0}
"""


def toml(text: str) -> Section:
    return section_of_text(text, "f.toml")


def yaml(text: str) -> Section:
    return section_of_text(text, "f.yaml", is_yaml=True)


def test_every_key_of_a_task_is_read() -> None:
    assert read_task(toml(WHOLE)) == TaskSpec(
        command=("echo", "{i}"),
        resources=Resources.parse("cpus:0.5;mem:1GB;ports:2"),
        limits="mem:2GB;pids:100",
        env={"A": "b", "N": "3"},
        user="nobody",
        image="docker://debian:12",
        namespaces=True,
        network=False,
        timeout_s=5400.0,
        grace_s=5.0,
        constraints=(equals("rack", "r1"), exists("gpu")),
        retries=3,
        backoff=Backoff(10.0, 3.0, 120.0, 0.0),
    )


BESIDE = """
shell = "./serve {i}"
resources = {cpus = 1, mem = "1GB"}
env = {A = "b"}
user = "nobody"
[beside.logs]
command = ["./ship", "{i}"]
resources = {cpus = 0.5, mem = "64MB"}
env = {C = "d"}
[beside.cache]
shell = "./cache"
part = "member"
limits = {pids = 10}
"""


def test_tasks_beside_another_one_are_its_group() -> None:
    spec = read_task(toml(BESIDE)).with_text(lambda text: text.replace("{i}", "7"))
    main, logs, cache = spec.tasks("t", "n", env={"I": "7"})
    assert [task.task_id for task in (main, logs, cache)] == ["t", "t+logs", "t+cache"]
    assert {task.group_id for task in (main, logs, cache)} == {"t"}
    assert [str(task.part) for task in (main, logs, cache)] == ["leader", "sidecar", "member"]
    assert logs.command.argv == ("./ship", "7")
    assert logs.command.environment == {"A": "b", "C": "d", "I": "7"}
    assert (logs.name, logs.command.user) == ("n logs", "nobody")
    assert str(spec.total) == "cpus:2.5;mem:1216MB"
    assert spec.conditions() == (enforces("groups", "pids"),)


def test_tasks_beside_another_one_have_the_defaults_of_the_file() -> None:
    text = 'resources = {cpus = 0.1, mem = "64MB"}\ngrace = 9\ntimeout = "5s"\nlimits = {pids = 5}'
    others = '[beside.own]\nshell = "z"\nresources = {cpus = 2}'
    defaults = read_task(toml(text), needs_command=False)
    spec = read_task(toml(f'shell = "x"\n[beside.logs]\nshell = "y"\n{others}'), defaults)
    logs, own = spec.beside["logs"], spec.beside["own"]
    assert str(logs.resources) == "cpus:0.1;mem:64MB"
    assert (logs.grace_s, logs.timeout_s, logs.limits) == (9.0, None, "pids:5")
    assert str(own.resources) == "cpus:2;mem:64MB"


def test_a_task_alone_is_in_no_group() -> None:
    (task,) = read_task(toml('shell = "x"')).tasks("t")
    assert (task.group_id, str(task.part)) == ("", "member")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[beside]", "beside: names no task"),
        ("[beside.a]", "beside.a: a task needs a `command` list or a `shell` line"),
        ('[beside.a]\nshell="y"\nretries=1', "beside.a.retries: unknown key"),
        ('[beside.a]\nshell="y"\npart="leader"', "'leader' is not one of sidecar, member"),
        ('[beside."a b"]\nshell="y"', "has 1 to 32 letters"),
        ('network=false\n[beside.a]\nshell="y"', "a task of a group cannot be without network"),
        ('[beside.a]\nshell="y"\nimage="x"', "beside.a: image 'x'"),
    ],
)
def test_mistakes_beside_a_task(text: str, error: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(error)):
        read_task(toml(f'shell = "x"\n{text}'))


def test_yaml_gives_the_same_as_toml() -> None:
    same = """
        shell: echo $A
        resources: {cpus: 0.5}
        env: {A: b}
        constraints: [rack equals r1]
    """
    other = """
        shell = "echo $A"
        resources = "cpus:0.5"
        env.A = "b"
        constraints = "rack equals r1"
    """
    assert read_task(yaml(same)) == read_task(toml(other))


def test_absent_keys_have_defaults_and_amounts_are_merged() -> None:
    spec = read_task(toml('shell = "x"\nresources = {cpus = 2}'))
    assert spec.resources == Resources.parse("cpus:2;mem:128MB")
    assert spec == TaskSpec(shell="x", resources=spec.resources)
    defaults = read_task(toml('env = {A = "1", B = "1"}\nretries = 2'), needs_command=False)
    merged = read_task(toml('shell = "x"\nenv = {B = "2"}'), defaults)
    assert (merged.env, merged.retries) == ({"A": "1", "B": "2"}, 2)


def test_rules_of_preemption() -> None:
    text = 'shell = "x"\nmin_run = "10m"\nrequeue = true\ncheckpoint_signal = "SIGUSR2"'
    rules = read_task(toml(text)).task("t").info.preemption
    assert rules == TaskPreemption(600_000, True, SIGUSR2)
    with pytest.raises(InvalidRequest, match="no signal for a checkpoint"):
        read_task(toml('shell = "x"\ncheckpoint_signal = "SIGKILL"'))


def test_a_spec_becomes_a_task() -> None:
    spec = read_task(toml(WHOLE.replace("namespaces = true\n", "")))
    task = spec.with_text(lambda text: text.replace("{i}", "7")).task("t", "n", env={"I": "7"})
    assert (task.task_id, task.name) == ("t", "n")
    assert task.command.argv == ("echo", "7")
    assert task.command.environment == {"A": "b", "N": "3", "I": "7"}
    assert task.info.max_completion_ms == 5_400_000
    assert spec.conditions()[:2] == spec.constraints
    assert spec.conditions()[2] == enforces(*task.needs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retries = 'x'", "f.toml: retries: a whole number is expected, not 'x'"),
        ("retries = true", "f.toml: retries: a whole number is expected, not true"),
        ("retries = -1", "f.toml: retries: must be between 0 and 1000, not -1"),
        ("retrys = 1", "f.toml: retrys: unknown key; did you mean 'retries'?"),
        ("zzz = 1", "f.toml: zzz: unknown key; the keys here are command, shell,"),
        ('"a b" = 1', "f.toml: 'a b': unknown key"),
        (
            "command = 'echo'",
            "f.toml: command: a list of words is expected; a text goes to `shell`",
        ),
        ("command = ['a', 1]", "f.toml: command[1]: a text is expected, not 1"),
        ("command = []", "f.toml: a task needs a `command` list or a `shell` line"),
        ("command = ['a']\nshell = 'b'", "f.toml: give a `command` list or"),
        ("shell = 'a'\ntimeout = '5 minutes'", "f.toml: timeout: '5 minutes' is not a duration"),
        ("shell = 'a'\ntimeout = []", "f.toml: timeout: a duration, such as '30s' or '5m', is"),
        ("shell = 'a'\ntimeout = 0", "f.toml: timeout: must be between 0.001 and"),
        ("shell = 'a'\ntimeout = nan", "f.toml: timeout: must be between 0.001 and"),
        ("shell = 'a'\nresources = 'cpu'", "f.toml: resources: 'cpu' is not NAME:AMOUNT"),
        ("shell = 'a'\nresources = 3", "f.toml: resources: a table, or a text"),
        ("shell = 'a'\nresources = {mem = '1XB'}", "f.toml: resources: mem: unknown unit 'XB'"),
        ("shell = 'a'\nresources = {gpus = 0.5}", "f.toml: gpus must be whole"),
        ("shell = 'a'\nlimits = {mem = '1MB'}", "f.toml: the limit of mem (1MB) is below"),
        (
            "shell = 'a'\nlimits = {memory = '1GB'}",
            "f.toml: limits.memory: unknown key; did you mean 'mem'?",
        ),
        (
            "shell = 'a'\nenv = {A = true}",
            "f.toml: env.A: a text or a number is expected, not true",
        ),
        ("shell = 'a'\nenv = 'A=b'", "f.toml: env: a table is expected, not 'A=b'"),
        ("shell = 'a'\nnetwork = 'no'", "f.toml: network: true or false is expected, not 'no'"),
        (
            "shell = 'a'\nconstraints = ['rack is r1']",
            "f.toml: constraints[0]: 'rack is r1' is not",
        ),
        ("shell = 'a'\nconstraints = ['a matches (']", "f.toml: constraints[0]: constraint on a:"),
        (
            "shell = 'a'\nbackoff = {inital = 1}",
            "f.toml: backoff.inital: unknown key; did you mean",
        ),
        ("shell = 'a'\nbackoff = {max = 0.5}", "f.toml: backoff.max: is below `initial`"),
        ("a = 1\na = 2", "f.toml: at end of document: a key is given twice"),
        ("[a]\n[a]", "f.toml: at line 2, column 3: a key is given twice"),
        ("a = ", "f.toml: not TOML: Invalid value (at end of document)"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_task(toml(text))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "f.yaml: line 2: the key 'a' is given twice"),
        ("x:\n  a: 1\n  a: 2", "f.yaml: line 3: the key 'a' is given twice"),
        ("on: 1", "f.yaml: line 1: the key True is not a text; write it in quotes"),
        ("a: [1", "f.yaml: not YAML: expected ',' or ']', but got '<stream end>' (at line 1,"),
        ("- a", "f.yaml: a table of keys is expected at the top"),
        ("!!python/object:os.system {}", "f.yaml: not YAML: could not determine a constructor"),
        ("shell:", "f.yaml: shell: has no value"),
        ("a: 2026-13-45", "f.yaml: not YAML: month must be in 1..12"),
        ("[" * 5000, "f.yaml: it is nested too deeply"),
    ],
)
def test_a_mistake_in_yaml_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_task(yaml(text))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_places_of_nested_tables() -> None:
    tasks = toml("[tasks.build]\nshell = 'x'\nretries = 'x'").required("tasks")
    message = "f.toml: tasks.build.retries: a whole number is expected, not 'x'"
    with pytest.raises(InvalidRequest) as caught:
        [read_task(section) for section in tasks.sections()]
    assert str(caught.value) == message
    with pytest.raises(InvalidRequest, match=r"f\.toml: tasks: is missing"):
        toml("").required("tasks")


def test_choices_name_the_nearest() -> None:
    section = toml("overlap = 'skp'")
    with pytest.raises(InvalidRequest, match="not one of skip, queue; did you mean 'skip'"):
        section.text("overlap", "skip", choices=("skip", "queue"))


def test_yaml_anchors_are_merged_without_being_called_duplicates() -> None:
    text = "a: &a {shell: x, retries: 1}\nb: {<<: *a, retries: 2}"
    specs = [read_task(section) for section in yaml(text).sections()]
    assert [spec.retries for spec in specs] == [1, 2]


def test_files_are_read_by_suffix(tmp_path: Path) -> None:
    for name, text in (("a.toml", "x = 1"), ("b.yaml", "x: 1"), ("c.YML", "x: 1")):
        (tmp_path / name).write_text(text)
        assert read_job_file(tmp_path / name).whole("x", 0) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{}", "a job file ends in .toml, .yaml, .yml"),
        ("gone.toml", None, "cannot read .*: No such file or directory"),
        ("a.toml", b"\xff", "byte 0 is not text in UTF-8"),
        ("big.toml", b"#" * (16 * 2**20 + 1), "at most 16 MiB"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=message):
        read_job_file(tmp_path / name)


def test_yaml_without_pyyaml_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'croupier\[yaml\]'"):
        yaml("a: 1")


@pytest.mark.parametrize(
    "constraint",
    [
        equals("rack", "r 1"),
        matches("hostname", "node-.*"),
        exists("gpu"),
        not_exists("gpu"),
        enforces("memory", "images"),
    ],
)
def test_a_constraint_is_read_from_its_text(constraint: object) -> None:
    assert parse_constraint(str(constraint)) == constraint


def test_pauses_grow_and_have_jitter() -> None:
    backoff = Backoff(1.0, 2.0, 5.0, 0.5)
    assert [backoff.pause_s(n) for n in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]
    assert (backoff.pause_s(1, 0.0), backoff.pause_s(1, 1.0)) == (0.5, 1.5)
    assert DEFAULT_TASK.backoff == Backoff()
