"""Tags: the names of kinds, fields and enum members in durable formats.

Rule: a tag is part of a format and never changes. A rename in Python keeps the tag, written as
`attribute=tag`; a field that Python no longer has keeps its tag as `=tag`, which is read and
ignored.

Classes that several formats record declare their tags beside the class with `recorded`. Each
format has one `Table` of its kinds. Both refuse, on import, a field without a tag, a tag without
a field, and a tag that is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeVar, cast

from croupier.model import errors
from croupier.model.errors import CroupierError

C = TypeVar("C", bound=type)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Names:
    """Tags of the fields of a dataclass, or of the members of an enum.

    Attributes:
        tags: tag by attribute, in the order in which fields are written.
        retired: tags that are read and ignored.
    """

    tags: Mapping[str, str]
    retired: frozenset[str]

    @classmethod
    def of(cls, owner: type, text: str) -> Names:
        """Parse `text`: words of the form `tag`, `attribute=tag` or `=tag`.

        Raises:
            TypeError: if the words do not name each attribute of `owner` once.
        """
        tags: dict[str, str] = {}
        retired: set[str] = set()
        for word in text.split():
            attribute, _, tag = word.rpartition("=")
            if word.startswith("="):
                retired.add(tag)
            else:
                tags[attribute or tag] = tag
        attributes = set(_attributes(owner))
        for name in sorted(attributes - tags.keys()):
            raise TypeError(
                f"{owner.__name__}.{name} has no tag: name it where the class is recorded"
            )
        for name in sorted(tags.keys() - attributes):
            raise TypeError(
                f"{owner.__name__} has no {name}: after a rename write new_name={tags[name]},"
                f" after a removal ={tags[name]}"
            )
        if len({*tags.values(), *retired}) < len(text.split()):
            raise TypeError(f"{owner.__name__}: a tag or an attribute is named twice")
        return cls(tags, frozenset(retired))


def _attributes(owner: type) -> Iterator[str]:
    if issubclass(owner, Enum):
        return iter(owner.__members__)
    assert is_dataclass(owner), f"{owner.__name__} is neither a dataclass nor an enum"
    return (field.name for field in fields(cast("Any", owner)) if field.init)


_SHARED: dict[type, tuple[str, Names]] = {}


def recorded(tag: str, text: str) -> Callable[[C], C]:
    """Declare the tags of a class that several formats record; `Names.of` reads `text`.

    `tag` names the class in descriptions of formats. As a kind it has the tag of the format.
    """

    def declare(owner: C) -> C:
        _SHARED[owner] = tag, Names.of(owner, text)
        return owner

    return declare


@dataclass(frozen=True, slots=True)
class Kind:
    """A class that a format records.

    Attributes:
        tag: the name of the kind, unique within the format.
        names: as `Names.of` reads it; None if the class declares its own.
    """

    tag: str
    owner: type
    names: str | None = None


def declared(owners: Sequence[type]) -> list[Kind]:
    """Return the kinds of classes that declare their tags with `recorded`.

    Raises:
        TypeError: if one declares none.
    """
    missing = [owner.__name__ for owner in owners if owner not in _SHARED]
    if missing:
        raise TypeError(f"no tags for {missing[0]}")
    return [Kind(_SHARED[owner][0], owner) for owner in owners]


class Table:
    """All kinds of one format, and the tags of their fields."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        """Check all of `kinds`.

        Raises:
            TypeError: if a kind has two tags, a tag has two kinds, or names are wrong.
        """
        self.kinds: dict[str, type] = {}
        self._tags: dict[type, str] = {}
        self._names: dict[type, Names] = {}
        for kind in kinds:
            if kind.tag in self.kinds or kind.owner in self._tags:
                raise TypeError(f"{kind.tag} or {kind.owner.__name__} is twice in a table")
            self.kinds[kind.tag] = kind.owner
            self._tags[kind.owner] = kind.tag
            if kind.names is not None:
                if kind.owner in _SHARED:
                    raise TypeError(f"{kind.owner.__name__} has its own tags")
                self._names[kind.owner] = Names.of(kind.owner, kind.names)

    def tag(self, owner: type) -> str:
        """Return the tag of a kind.

        Raises:
            TypeError: if the table does not list it.
        """
        if owner not in self._tags:
            raise TypeError(f"{owner.__name__} is not in the table of its format")
        return self._tags[owner]

    def names(self, owner: type) -> Names:
        """Return the tags of fields or members.

        Raises:
            TypeError: if neither the table nor the class has any.
        """
        found = self._names.get(owner)
        if found is None and owner in _SHARED:
            found = _SHARED[owner][1]
        if found is None:
            raise TypeError(f"no tags for {owner.__name__}")
        return found

    def title(self, owner: type) -> str:
        """Return the tag of a kind, or the one that a class declares.

        Raises:
            TypeError: if it has none.
        """
        if owner in self._tags:
            return self._tags[owner]
        (kind,) = declared([owner])
        return kind.tag

    def members(self, owner: type[E]) -> dict[E, str]:
        """Return the tag of each member of an enum.

        Raises:
            TypeError: if it has none.
        """
        return {owner[name]: tag for name, tag in self.names(owner).tags.items()}


# Errors are recorded in all formats.
ERRORS: Final[Mapping[str, type[CroupierError]]] = {
    "CroupierError": errors.CroupierError,
    "InvalidRequest": errors.InvalidRequest,
    "NotFound": errors.NotFound,
    "Conflict": errors.Conflict,
    "Unavailable": errors.Unavailable,
    "NotLeader": errors.NotLeader,
    "FailedOver": errors.FailedOver,
    "Removed": errors.Removed,
    "TooSlow": errors.TooSlow,
    "ProtocolViolation": errors.ProtocolViolation,
    "Unauthenticated": errors.Unauthenticated,
    "PermissionDenied": errors.PermissionDenied,
}
_ERROR_TAGS: Final = {cls: tag for tag, cls in ERRORS.items()}


def error_tag(error: CroupierError) -> str:
    """Return the tag of the error's class, or of its nearest ancestor that has one."""
    return next(_ERROR_TAGS[cls] for cls in type(error).__mro__ if cls in _ERROR_TAGS)
