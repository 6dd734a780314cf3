"""Values as JSON and back, by their types alone.

Rule: what is decoded is built by the constructors of the types that were asked for, which
check it; a document can name no type that was not. So a hostile one does no more than fail.
Errors name types and fields and quote no values: a document may hold secrets.

Known are atoms, ids, enums, literals, tuples, frozen sets, mappings, dataclasses, unions,
`Resources`, `Fraction` and the tree of errors. In a dataclass the fields that have their
default are left out; of a union of dataclasses `kind` says which.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from croupier.model import errors
from croupier.model.errors import CroupierError
from croupier.model.ranges import Range
from croupier.model.resources import Resources
from croupier.model.tags import Table

KIND = "kind"

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


class Undecodable(CroupierError):
    """A document that is not of the type that was asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are written.

    Attributes:
        encode: to what `json` writes; None: as it is.
        decode: and back. Raises `Undecodable` or whatever the type's constructor raises.
    """

    encode: Encode | None
    decode: Decode


class Codec:
    """The forms of types, made when they are first asked for."""

    def __init__(self, table: Table, special: Mapping[type, Form] | None = None) -> None:
        """Take all names from `table`. `special` forms replace those of their types."""
        self._table = table
        self._special = {
            Resources: Form(_resources, _decode_resources),
            Fraction: Form(_fraction, _decode_fraction),
            CroupierError: Form(_error, _decode_error),
            **(special or {}),
        }
        self.form = cache(self._form)

    def encoder(self, hint: Any) -> Encode:
        """What encodes values of the type `hint`.

        Raises:
            TypeError: if there is no form for it.
        """
        return self.form(hint).encode or _same

    def decoder(self, hint: Any) -> Decode:
        """What decodes values of the type `hint`; it raises `Undecodable` alone.

        Raises:
            TypeError: if there is no form for it.
        """
        decode = self.form(hint).decode

        def decoded(told: Any) -> Any:
            try:
                return decode(told)
            except Undecodable:
                raise
            except (CroupierError, ValueError, TypeError, OverflowError) as error:
                raise Undecodable(str(error)) from None

        return decoded

    def _form(self, hint: Any) -> Form:
        while hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        origin = get_origin(hint)
        if hint in (None, types.NoneType):
            return Form(None, _none)
        if origin in (Union, types.UnionType):
            return self._union(get_args(hint))
        if origin is Literal:
            return _literal(get_args(hint))
        if origin is tuple:
            return self._tuple(get_args(hint))
        if origin is frozenset:
            return self._frozenset(get_args(hint)[0])
        if origin in (dict, Mapping):
            return self._mapping(*get_args(hint))
        if isinstance(hint, type):
            return self._class(hint)
        raise TypeError(f"no form for {hint!r}")

    def _class(self, cls: type) -> Form:
        special = next((each for each in self._special if issubclass(cls, each)), None)
        if special is not None:
            return self._special[special]
        if cls in _ATOMS:
            return Form(None, _atom(cls))
        if issubclass(cls, Enum):
            return _enum(cls, self._table.members(cls))
        if dataclasses.is_dataclass(cls):
            return self._dataclass(cls)
        raise TypeError(f"no form for {cls.__name__}")

    def _dataclass(self, cls: type) -> Form:
        hints, names = get_type_hints(cls), self._table.names(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        defaults = {attribute: _default(fields[attribute]) for attribute in names.tags}
        forms = {tag: (each, self.form(hints[each])) for each, tag in names.tags.items()}
        written = [
            (attribute, tag, form.encode, defaults[attribute])
            for tag, (attribute, form) in forms.items()
        ]
        required = {tag for _, tag, _, default in written if default is _NO_DEFAULT}
        known, retired = forms.keys() | names.retired, names.retired

        def encode(value: Any) -> dict[str, Any]:
            told = {}
            for attribute, tag, encode_field, default in written:
                each = getattr(value, attribute)
                if default is _NO_DEFAULT or (each is not default and each != default):
                    told[tag] = each if encode_field is None else encode_field(each)
            return told

        def decode(told: Any) -> Any:
            given = _of(dict, told)
            if not required <= given.keys() <= known:
                wrong = sorted(required - given.keys()) or sorted(given.keys() - known)
                raise Undecodable(f"{cls.__name__}: {_named(wrong[0])} is missing or unknown")
            arguments = {}
            for tag, each in given.items():
                if tag not in retired:
                    attribute, form = forms[tag]
                    arguments[attribute] = form.decode(each)
            return cls(**arguments)

        return Form(encode, decode)

    def _union(self, members: tuple[Any, ...]) -> Form:
        classes: list[Any] = [each for each in members if dataclasses.is_dataclass(each)]
        rest = [each for each in members if each not in classes]
        if not classes:
            return self._either(rest)
        tagged = self._tagged(classes) if len(classes) > 1 else self.form(classes[0])
        if not rest:
            return tagged
        if rest != [types.NoneType]:
            raise TypeError(f"no form for a union of {members!r}")
        return _optional(tagged)

    def _tagged(self, classes: list[Any]) -> Form:
        tags = {each: self._table.tag(each) for each in classes}
        encoders = {each: self.form(each).encode for each in classes}
        decoders = {tag: self.form(each).decode for each, tag in tags.items()}

        def encode(value: Any) -> dict[str, Any]:
            encode_fields = encoders[type(value)]
            assert encode_fields is not None
            return {KIND: tags[type(value)], **encode_fields(value)}

        def decode(told: Any) -> Any:
            given = dict(_of(dict, told))
            kind = given.pop(KIND, None)
            if not isinstance(kind, str) or kind not in decoders:
                raise Undecodable(f"unknown kind {_named(kind)}")
            return decoders[kind](given)

        return Form(encode, decode)

    def _either(self, members: list[Any]) -> Form:
        """Members that are told apart by the JSON type of what they are written as."""
        if types.NoneType in members:
            others = [each for each in members if each is not types.NoneType]
            return _optional(self._either(others) if len(others) > 1 else self.form(others[0]))
        forms: dict[type, Form] = {}
        for member in members:
            forms[_json_type(member)] = self.form(member)
        if len(forms) < len(members):
            raise TypeError(f"no form for a union of {members!r}")

        def encode(value: Any) -> Any:
            form = forms[type(value)]
            return value if form.encode is None else form.encode(value)

        def decode(told: Any) -> Any:
            written = tuple if isinstance(told, list) else type(told)
            if written not in forms:
                raise Undecodable(f"{_shown(told)} is not expected here")
            return forms[written].decode(told)

        return Form(encode, decode)

    def _tuple(self, items: tuple[Any, ...]) -> Form:
        if len(items) == 2 and items[1] is Ellipsis:
            form = self.form(items[0])
            return Form(_each(form.encode, list), _decode_each(form.decode, tuple))
        forms = [self.form(item) for item in items]

        def encode(value: Any) -> list[Any]:
            return [
                each if form.encode is None else form.encode(each)
                for form, each in zip(forms, value, strict=True)
            ]

        def decode(told: Any) -> Any:
            given = _of(list, told)
            if len(given) != len(forms):
                raise Undecodable(f"{len(forms)} items are expected, not {len(given)}")
            return tuple(form.decode(each) for form, each in zip(forms, given, strict=True))

        return Form(encode, decode)

    def _frozenset(self, item: Any) -> Form:
        form = self.form(item)
        return Form(_each(form.encode, sorted), _decode_each(form.decode, frozenset))

    def _mapping(self, key: Any, value: Any) -> Form:
        if self.form(key).encode is not None:
            raise TypeError(f"no form for a mapping from {key!r}")
        form = self.form(value)
        encode_value, decode_value = form.encode, form.decode

        def encode(mapping: Any) -> dict[str, Any]:
            if encode_value is None:
                return dict(mapping)
            return {name: encode_value(each) for name, each in mapping.items()}

        def decode(told: Any) -> Any:
            return {name: decode_value(each) for name, each in _of(dict, told).items()}

        return Form(encode, decode)


_ATOMS = (str, int, float, bool)
_NO_DEFAULT: Any = object()


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NO_DEFAULT if field.default is dataclasses.MISSING else field.default


def _same(value: Any) -> Any:
    return value


def _shown(told: Any) -> str:
    return "nothing" if told is None else f"a {type(told).__name__}"


def _named(told: Any) -> str:
    """A name if it can be one of ours."""
    is_name = isinstance(told, str) and len(told) <= 40 and told.isidentifier()
    return repr(told) if is_name else "a name that is none"


def _refuse(told: Any, expected: str) -> NoReturn:
    raise Undecodable(f"{_shown(told)} is not {expected}")


def _of(cls: type, told: Any) -> Any:
    if type(told) is not cls:
        _refuse(told, f"a {cls.__name__}")
    return told


def _none(told: Any) -> None:
    if told is not None:
        _refuse(told, "nothing")


def _atom(cls: type) -> Decode:
    """Exactly that type: a bool is no int. An int will do for a float, and stays one."""
    taken = (int, float) if cls is float else (cls,)

    def decode(told: Any) -> Any:
        if type(told) not in taken:
            _refuse(told, f"a {cls.__name__}")
        return told

    return decode


def _enum(cls: type[Enum], tags: Mapping[Enum, str]) -> Form:
    members = {tag: member for member, tag in tags.items()}

    def decode(told: Any) -> Any:
        if not isinstance(told, str) or told not in members:
            _refuse(told, f"a {cls.__name__}")
        return members[told]

    return Form(tags.__getitem__, decode)


def _literal(values: tuple[Any, ...]) -> Form:
    def decode(told: Any) -> Any:
        if not isinstance(told, str | int) or told not in values:
            _refuse(told, f"one of {values}")
        return told

    return Form(None, decode)


def _optional(form: Form) -> Form:
    some, back = form.encode, form.decode

    def decode(told: Any) -> Any:
        return None if told is None else back(told)

    if some is None:
        return Form(None, decode)
    return Form(lambda value: None if value is None else some(value), decode)


def _each(encode: Encode | None, made: Callable[[Any], Any]) -> Encode:
    if encode is None:
        return made
    return lambda values: made([encode(each) for each in values])


def _decode_each(decode: Decode, made: Callable[[Any], Any]) -> Decode:
    return lambda told: made([decode(each) for each in _of(list, told)])


def _json_type(member: Any) -> type:
    return tuple if get_origin(member) is tuple else member


def _fraction(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]


def _decode_fraction(told: Any) -> Fraction:
    match told:
        case [int(number), int(over)] if over > 0:
            return Fraction(number, over)
        case _:
            _refuse(told, "a fraction")


def _error(error: CroupierError) -> dict[str, str]:
    return {KIND: error_tag(error), "text": str(error)}


def _decode_error(told: Any) -> CroupierError:
    match told:
        case {"kind": str(kind), "text": str(text), **rest} if kind in ERRORS and not rest:
            return ERRORS[kind](text)
        case _:
            _refuse(told, "an error")


def _resources(amount: Resources) -> dict[str, Any]:
    """By name: a number is of a scalar, a list of ranges, an object of a set."""
    told: dict[str, Any] = dict(amount.scalars)
    for name, ranges in amount.ranges.items():
        told[name] = [list(each) for each in ranges]
    for name, items in amount.sets.items():
        told[name] = {"set": sorted(items)}
    return told


def _decode_resources(told: Any) -> Resources:
    scalars: dict[str, int] = {}
    ranges: dict[str, tuple[Range, ...]] = {}
    sets: dict[str, frozenset[str]] = {}
    for name, value in _of(dict, told).items():
        match value:
            case bool():
                _refuse(value, "an amount")
            case int():
                scalars[name] = value
            case list():
                ranges[name] = tuple(map(_range, value))
            case {"set": [*items]} if all(isinstance(item, str) for item in items):
                sets[name] = frozenset(items)
            case _:
                _refuse(value, "an amount")
    return Resources(scalars, ranges, sets)


def _range(told: Any) -> Range:
    match told:
        case [int(begin), int(end)]:
            return begin, end
        case _:
            _refuse(told, "a range")


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
}
_ERROR_TAGS: Final = {cls: tag for tag, cls in ERRORS.items()}


def error_tag(error: CroupierError) -> str:
    """Return the tag of the error's class, or of its nearest ancestor that has one."""
    return next(_ERROR_TAGS[cls] for cls in type(error).__mro__ if cls in _ERROR_TAGS)
