"""The service file: TOML or YAML, checked as a whole before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from croupier.apps.job_file.section import Section
from croupier.apps.service.core.placement import Template
from croupier.apps.service.core.rules import (
    MAX_INSTANCES,
    Check,
    Health,
    Restart,
    Rules,
    Update,
    Version,
)
from croupier.apps.service.template import MAX_PORTS, read_template
from croupier.model.ids import check_role

MAX_NAME: Final = 60
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_KEYS: Final = (
    *("name", "role", "instances", "ports", "spread", "spread_wait", "unreachable"),
    *("task", "health", "restart", "update"),
)
_HEALTH_KEYS: Final = ("http", "tcp", "command", "port", "grace", "interval", "timeout", "failures")
_UPDATE_KEYS: Final = (
    *("max_unavailable", "surge", "healthy_within", "settle"),
    *("failures", "rollback"),
)


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A checked service file.

    Attributes:
        version: the first one; its content are the tables `task` and `ports`.
        tables: the file as JSON values.
    """

    name: str
    role: str
    rules: Rules
    version: Version
    tables: Mapping[str, Any]


def read_service(root: Section) -> ServiceFile:
    """Check the root section of a service file.

    Raises:
        InvalidRequest: names the place of the mistake.
    """
    root.check_keys(_KEYS)
    name = check_name(root)
    ports = root.whole("ports", 0, most=MAX_PORTS)
    template = read_template(root.required("task"), ports)
    health = _read_health(root, template)
    default = Rules()
    rules = Rules(
        instances=root.whole("instances", default.instances, most=MAX_INSTANCES),
        spread=root.text("spread", ""),
        spread_wait_s=root.duration("spread_wait", default.spread_wait_s, most=3600),
        unreachable_s=root.duration("unreachable", default.unreachable_s),
        restart=_read_restart(root),
        update=_read_update(root, health),
    )
    content = {"task": root.raw("task"), "ports": ports}
    # Equal digests run the same.
    text = json.dumps([content, asdict(health)], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return ServiceFile(
        name,
        root.parsed("role", check_role, check_role("*")),
        rules,
        Version(1, digest, health, content),
        {key: root.raw(key) for key in root},
    )


def check_name(root: Section) -> str:
    """Return the service's name; raises InvalidRequest if it is missing, or cannot be a name."""
    name = root.text("name", "")
    if not name:
        raise root.error("is missing", "name")
    if len(name) > MAX_NAME or not _NAME.match(name):
        raise root.error(
            f"{name[:80]!r} is not a name: lower-case letters, digits, '-' and '.', at most"
            f" {MAX_NAME}",
            "name",
        )
    return name


def _read_health(root: Section, template: Template) -> Health:
    section = root.section("health")
    if section is None:
        return Health()
    section.check_keys(_HEALTH_KEYS)
    kinds = [key for key in ("http", "tcp", "command") if key in section]
    if len(kinds) != 1:
        raise section.error("give one of `http`, `tcp` and `command`")
    kind = Check(kinds[0])
    if kind is Check.TCP and not section.flag("tcp", False):
        raise section.error("must be true, or be left out", "tcp")
    path = section.text("http", "/")
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise section.error(f"{path[:80]!r} is not a path such as /healthz", "http")
    command = section.text("command", "")
    if kind is Check.COMMAND and not command.strip():
        raise section.error("is empty", "command")
    port = section.whole("port", 0, most=MAX_PORTS)
    if kind.is_probed and port >= template.ports:
        raise section.error(f"the service has {template.ports} ports; give `ports` above it")
    if kind.is_probed and not template.spec.network:
        raise section.error("the task has no network; use `command`", kind.value)
    default = Health()
    health = Health(
        kind,
        port,
        path,
        command,
        section.duration("grace", default.grace_s, most=86400),
        section.duration("interval", default.interval_s, least=0.1, most=86400),
        section.duration("timeout", default.timeout_s, least=0.05, most=3600),
        section.whole("failures", default.failures, least=1, most=1000),
    )
    if kind is Check.COMMAND:
        for key, seconds in (("interval", health.interval_s), ("timeout", health.timeout_s)):
            if seconds < 1 or seconds % 1:
                raise section.error("must be in whole seconds for a `command`", key)
    return health


def _read_restart(root: Section) -> Restart:
    section = root.section("restart")
    if section is None:
        return Restart()
    section.check_keys(("initial", "max", "reset"))
    default = Restart()
    first_s = section.duration("initial", default.first_s, least=0.05, most=86400)
    most_s = section.duration("max", max(first_s, default.most_s), most=86400)
    if most_s < first_s:
        raise section.error("is below `initial`", "max")
    return Restart(first_s, most_s, section.duration("reset", default.reset_s, most=86400))


def _read_update(root: Section, health: Health) -> Update:
    section = root.section("update") or Section({}, name="update", place="update")
    section.check_keys(_UPDATE_KEYS)
    default = Update()
    update = Update(
        section.whole("max_unavailable", default.max_unavailable, most=MAX_INSTANCES),
        section.whole("surge", default.surge, most=MAX_INSTANCES),
        section.duration("healthy_within", default.healthy_within_s, least=0.1, most=7 * 86400),
        section.duration("settle", default.settle_s, most=3600),
        section.whole("failures", default.failures, least=1, most=1000),
        section.flag("rollback", default.rolls_back),
    )
    if not (update.max_unavailable or update.surge):
        raise section.error("`max_unavailable` and `surge` are both 0: nothing could be replaced")
    needed_s = update.settle_s + (health.window_s if health.check is Check.COMMAND else 0.0)
    if update.healthy_within_s <= needed_s:
        raise root.error(
            f"`healthy_within` must be more than {needed_s:g} s, the time that a healthy instance"
            " needs to count as such",
            "update",
        )
    return update
