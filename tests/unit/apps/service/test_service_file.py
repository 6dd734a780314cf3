"""Service files: each mistake is one line with its place."""

from __future__ import annotations

import json

import pytest

from croupier.apps.job_file.section import section_of_text
from croupier.apps.service.core.rules import Check
from croupier.apps.service.file import ServiceFile, read_service
from croupier.model.errors import InvalidRequest

BASE = """\
name = "web"
instances = 2
ports = 1
[task]
shell = "run"
"""


def read(text: str) -> ServiceFile:
    return read_service(section_of_text(text, "web.toml"))


def test_a_small_file_has_defaults() -> None:
    file = read(BASE)
    assert (file.name, file.role, file.rules.instances) == ("web", "*", 2)
    assert file.version.health.check is Check.NONE
    assert file.rules.update.max_unavailable == 1
    assert json.loads(json.dumps(file.version.content)) == {"task": {"shell": "run"}, "ports": 1}
    assert read_service(section_of_text(BASE)).version.digest == file.version.digest


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("instances = 2", "instances = 5", True),
        ("instances = 2", 'spread = "rack"', True),
        ("ports = 1", "ports = 2", False),
        ('shell = "run"', 'shell = "walk"', False),
        ('shell = "run"', 'shell = "run"\n[health]\nhttp = "/"', False),
        ('shell = "run"', 'shell = "run"\n[update]\nsurge = 1', True),
    ],
)
def test_what_makes_a_version(old: str, new: str, same: bool) -> None:
    assert (read(BASE.replace(old, new)).version.digest == read(BASE).version.digest) == same


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (BASE.replace("instances", "instnaces"), "instnaces: unknown key; did you mean"),
        (BASE.replace('"web"', '"Web/1"'), "name: 'Web/1' is not a name"),
        (BASE.replace('name = "web"\n', ""), "name: is missing"),
        (BASE.replace("= 2", "= -1"), "instances: must be between 0 and 1000, not -1"),
        ('name = "web"\n', "task: is missing"),
        (BASE + "retries = 1\n", "task.retries: unknown key"),
        (BASE + 'resources = "cpus:1;ports:2"\n', "task.resources: only amounts are allowed"),
        (BASE + "[health]\n", "health: give one of `http`, `tcp` and `command`"),
        (BASE + '[health]\nhttp = "/"\ntcp = true\n', "health: give one of"),
        (BASE + '[health]\nhttp = "healthz"\n', "health.http: 'healthz' is not a path"),
        (BASE + '[health]\nhttp = "/"\nport = 1\n', "health: the service has 1 ports"),
        (BASE + '[health]\nhttp = "/"\ninterval = "soon"\n', "health.interval: 'soon' is not"),
        (BASE + 'network = false\n[health]\ntcp = true\n', "health.tcp: the task has no network"),
        (BASE + "[health]\ncommand = 'x'\ninterval = '1500ms'\n", "health.interval: must be in"),
        (BASE + "[update]\nmax_unavailable = 0\n", "both 0: nothing could be replaced"),
        (BASE + "[update]\nhealthy_within = '2s'\n", "`healthy_within` must be more than 3 s"),
        (BASE + "[restart]\ninitial = '1m'\nmax = '1s'\n", "restart.max: is below `initial`"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_place(text: str, error: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(text)
    assert str(caught.value).startswith("web.toml: ")
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
