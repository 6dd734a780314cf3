"""The directory of one service: its state, its lock and its control socket.

Rule: the state is written to a new file that replaces the old one, so a full disk or a power
failure leaves the old state. One controller holds the lock. What a restart finds out again, such as
the results of checks, is left out of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from croupier.apps.controller.store import locked
from croupier.apps.service.core.instance import Instance, Slot
from croupier.apps.service.core.rules import Rules, Version
from croupier.apps.service.core.state import Rollout, Service
from croupier.model.errors import Conflict, Unavailable
from croupier.process.durable_files import replace_file

SCHEMA: Final = 1
T = TypeVar("T")
_PASSING: Final = {
    Instance: ("misses", "check_due", "is_checking", "checked", "killed_at"),
    Slot: ("wanted_since",),
}
_SIMPLE: Final = (
    *("name", "token", "target", "stable", "previous"),
    *("next_version", "next_task", "is_stopping"),
)


class StateDir:
    """The files of one service below `base`."""

    def __init__(self, base: Path, name: str) -> None:
        self.name, self.path = name, base / name
        self._written = ""
        self._held = ExitStack()

    @property
    def state_file(self) -> Path:
        """The state."""
        return self.path / "service.json"

    @property
    def log_file(self) -> Path:
        """The output of a controller in the background."""
        return self.path / "controller.log"

    def make(self) -> None:
        """Make the directory, readable by its owner only; raises Unavailable if that fails."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._cannot_write(error) from None

    def lock(self) -> bool:
        """Take the lock; return whether that worked; raises Unavailable if it cannot be written."""
        try:
            self._held.enter_context(locked(self.path / "lock", f"service {self.name}"))
        except Conflict:
            return False
        return True

    def holder(self) -> int:
        """Return the pid of the controller that holds the lock; 0 if none does."""
        try:
            entry = (self.path / "lock").stat()
            lines = Path("/proc/locks").read_text().splitlines()
        except OSError:
            return 0
        inode = f":{entry.st_ino}"
        for line in lines:
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].endswith(inode):
                return int(words[4])
        return 0

    def unlock(self) -> None:
        """Give the lock back."""
        self._held.close()

    def load(self) -> Service | None:
        """Return the state; None if there is none.

        Raises Unavailable if it cannot be read, is damaged, or is of a newer release.
        """
        try:
            values: Any = json.loads(self.state_file.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"cannot read {self.state_file}: {error.strerror}") from None
        except ValueError:
            raise self._damaged("it is not JSON") from None
        schema = values.get("schema") if isinstance(values, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise Unavailable(f"{self.state_file} is of a newer release: upgrade croupier")
        try:
            service = from_json(values["service"])
            service.role, service.framework_id = str(values["role"]), str(values["framework_id"])
            service.is_superseded = bool(values["is_superseded"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(f"{type(error).__name__}: {error}") from None
        return service

    def save(self, service: Service) -> None:
        """Make the state durable, if it has changed since the last save.

        Raises Unavailable if that fails; the earlier state is kept.
        """
        text = json.dumps(
            {
                "schema": SCHEMA,
                "role": service.role,
                "framework_id": service.framework_id,
                "is_superseded": service.is_superseded,
                "service": to_json(service),
            }
        )
        if text == self._written:
            return
        try:
            replace_file(self.state_file, text.encode())
        except OSError as error:
            raise self._cannot_write(error) from None
        self._written = text

    def _cannot_write(self, error: OSError) -> Unavailable:
        return Unavailable(f"cannot write the state in {self.path}: {error.strerror}")

    def _damaged(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self.state_file} is damaged ({why[:100]}): restore it, or remove it and take the"
            " instances over with apply --takeover"
        )


def to_json(service: Service) -> dict[str, Any]:
    """Return what `from_json` reads."""
    return {
        **{name: getattr(service, name) for name in _SIMPLE},
        "rules": asdict(service.rules),
        "rollout": asdict(service.rollout),
        "versions": [asdict(each) for each in service.versions.values()],
        "slots": [_kept(each) for each in service.slots.values()],
        "instances": [_kept(each) for each in service.instances.values()],
    }


def from_json(values: Mapping[str, Any]) -> Service:
    """Return the service; raises KeyError, TypeError or ValueError if it is malformed."""
    versions = [_made(Version, each) for each in values["versions"]]
    slots = [_made(Slot, each) for each in values["slots"]]
    instances = [_made(Instance, each) for each in values["instances"]]
    return Service(
        **{name: values[name] for name in _SIMPLE},
        rules=_made(Rules, values["rules"]),
        rollout=_made(Rollout, values["rollout"]),
        versions={each.number: each for each in versions},
        slots={each.index: each for each in slots},
        instances={each.task_id: each for each in instances},
    )


def _kept(value: Instance | Slot) -> dict[str, Any]:
    return {key: kept for key, kept in asdict(value).items() if key not in _PASSING[type(value)]}


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass; keys that a newer release has added are ignored."""
    hints = get_type_hints(kind)
    return kind(**{key: _value(hints[key], given) for key, given in values.items() if key in hints})


def _value(hint: Any, given: Any) -> Any:
    """Return a field of the type `hint`: a dataclass, an enum, or ports."""
    if isinstance(hint, type) and is_dataclass(hint):
        return _made(hint, given)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(given)
    return tuple(map(int, given)) if hint == tuple[int, ...] else given
