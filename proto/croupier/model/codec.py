"""Typed values as JSON documents, and back.

Rule: only the constructors of the expected types are called, and they check their arguments. A
document cannot name any other type, so a hostile document can only fail to decode. Errors name
types and fields and quote no values, since a document may hold secrets.

A codec knows atoms, ids, enums, literals, tuples, frozen sets, mappings, dataclasses, unions,
`Resources`, `Fraction`, bytes and the tree of errors. Names are those of Python, unless the codec
is given others: a rename in Python keeps the written name so. Fields of a dataclass that have their
default are left out. In a union of dataclasses, `kind` names the class.
"""

from __future__ import annotations

import dataclasses
import types
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from croupier.model import errors
from croupier.model.errors import CroupierError
from croupier.model.ranges import Range
from croupier.model.resources import Resources

KIND = "kind"

ERRORS: Final[Mapping[str, type[CroupierError]]] = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, CroupierError)
}

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


class Undecodable(CroupierError):
    """A document that is not of the expected type."""


class UnknownName(Undecodable):
    """A document with a name that is not known: a newer release may have written it."""


class Form(NamedTuple):
    """The written form of values of one type; without `encode`, `json` writes them as they are."""

    encode: Encode | None
    decode: Decode


class Codec:
    """Encoders and decoders of types, made on first use."""

    def __init__(
        self, names: Mapping[str, str] | None = None, special: Mapping[type, Form] | None = None
    ) -> None:
        """Use `names` for `CLASS`, `CLASS.field` and `ENUM.MEMBER`, else those of Python.

        `special` forms replace those of their types.
        """
        self._names = names or {}
        self._special = {
            Resources: Form(_resources, _decode_resources),
            Fraction: Form(lambda each: [each.numerator, each.denominator], _decode_fraction),
            CroupierError: Form(_error, _decode_error),
            bytes: Form(lambda each: b64encode(each).decode(), _decode_bytes),
            **(special or {}),
        }
        self.form = cache(self._form)

    def encoder(self, hint: Any) -> Encode:
        """Return the encoder of values of the type `hint`; raises TypeError if it has no form."""
        return self.form(hint).encode or (lambda value: value)

    def decoder(self, hint: Any) -> Decode:
        """Return the decoder of values of the type `hint`, which raises only `Undecodable`."""
        decode = self.form(hint).decode

        def decoded(document: Any) -> Any:
            try:
                return decode(document)
            except Undecodable:
                raise
            except (CroupierError, ValueError, TypeError, OverflowError) as error:
                raise Undecodable(str(error)) from None

        return decoded

    def name(self, owner: type, attribute: str = "") -> str:
        """Return the written name of a class, or of its field or member."""
        key = f"{owner.__name__}.{attribute}" if attribute else owner.__name__
        return self._names.get(key, attribute or owner.__name__)

    def _form(self, hint: Any) -> Form:
        while hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._union(parts)
        if origin is Literal:
            # Only facts have some: they are written, and never read.
            return self._class(type(parts[0]))
        if origin is tuple:
            return self._tuple(parts)
        if origin is frozenset:
            return _sequence(self.form(parts[0]), sorted, frozenset)
        if origin in (dict, Mapping):
            return self._mapping(*parts)
        if isinstance(hint, type):
            return self._class(hint)
        raise TypeError(f"no form for {hint!r}")

    def _class(self, cls: type) -> Form:
        special = next((each for each in self._special if issubclass(cls, each)), None)
        if special is not None:
            return self._special[special]
        if cls in (str, int, float, bool):
            return Form(None, _atom(cls))
        if issubclass(cls, Enum):
            return _enum(cls, {each: self.name(cls, each.name) for each in cls})
        if dataclasses.is_dataclass(cls):
            return self._dataclass(cls)
        raise TypeError(f"no form for {cls.__name__}")

    def _dataclass(self, cls: type) -> Form:
        hints = get_type_hints(cls)
        defaults = {each.name: _default(each) for each in dataclasses.fields(cls) if each.init}
        forms = {self.name(cls, each): (each, self.form(hints[each])) for each in defaults}
        written = [(each, tag, form.encode, defaults[each]) for tag, (each, form) in forms.items()]
        required = {tag for _, tag, _, default in written if default is _NO_DEFAULT}

        def encode(value: Any) -> dict[str, Any]:
            document = {}
            for attribute, tag, encode_field, default in written:
                each = getattr(value, attribute)
                if default is _NO_DEFAULT or (each is not default and each != default):
                    document[tag] = each if encode_field is None else encode_field(each)
            return document

        def decode(document: Any) -> Any:
            given = _check_type(dict, document)
            # First: a newer release may also have dropped a field that this one requires.
            if unknown := sorted(given.keys() - forms.keys()):
                raise UnknownName(f"{cls.__name__}: {_quoted_name(unknown[0])} is unknown")
            if missing := sorted(required - given.keys()):
                raise Undecodable(f"{cls.__name__}: {_quoted_name(missing[0])} is missing")
            arguments = {}
            for tag, each in given.items():
                attribute, form = forms[tag]
                arguments[attribute] = form.decode(each)
            return cls(**arguments)

        return Form(encode, decode)

    def _union(self, members: tuple[Any, ...]) -> Form:
        rest = tuple(each for each in members if each is not types.NoneType)
        if len(rest) < len(members):
            return _optional(self._union(rest) if len(rest) > 1 else self.form(rest[0]))
        if all(map(dataclasses.is_dataclass, members)):
            return self._tagged(members)
        return self._by_json_type(members)

    def _tagged(self, classes: tuple[Any, ...]) -> Form:
        tags = {each: self.name(each) for each in classes}
        encoders = {each: self.form(each).encode for each in classes}
        decoders = {tag: self.form(each).decode for each, tag in tags.items()}

        def encode(value: Any) -> dict[str, Any]:
            encode_fields = encoders[type(value)]
            assert encode_fields is not None
            return {KIND: tags[type(value)], **encode_fields(value)}

        def decode(document: Any) -> Any:
            given = dict(_check_type(dict, document))
            kind = given.pop(KIND, None)
            if not isinstance(kind, str) or kind not in decoders:
                raise UnknownName(f"unknown kind {_quoted_name(kind)}")
            return decoders[kind](given)

        return Form(encode, decode)

    def _by_json_type(self, members: tuple[Any, ...]) -> Form:
        """Return the form of a union whose members have different types in JSON."""
        forms = {tuple if get_origin(each) is tuple else each: self.form(each) for each in members}
        if len(forms) < len(members) or any(map(dataclasses.is_dataclass, members)):
            raise TypeError(f"no form for a union of {members!r}")

        def encode(value: Any) -> Any:
            form = forms[type(value)]
            return value if form.encode is None else form.encode(value)

        def decode(document: Any) -> Any:
            written = tuple if isinstance(document, list) else type(document)
            if written not in forms:
                raise Undecodable(f"{_type_name(document)} is not expected here")
            return forms[written].decode(document)

        return Form(encode, decode)

    def _tuple(self, items: tuple[Any, ...]) -> Form:
        if len(items) == 2 and items[1] is Ellipsis:
            return _sequence(self.form(items[0]), list, tuple)
        forms = [self.form(item) for item in items]

        def encode(value: Any) -> list[Any]:
            return [
                each if form.encode is None else form.encode(each)
                for form, each in zip(forms, value, strict=True)
            ]

        def decode(document: Any) -> Any:
            given = _check_type(list, document)
            if len(given) != len(forms):
                raise Undecodable(f"{len(forms)} items are expected, not {len(given)}")
            return tuple(form.decode(each) for form, each in zip(forms, given, strict=True))

        return Form(encode, decode)

    def _mapping(self, key: Any, value: Any) -> Form:
        if self.form(key).encode is not None:
            raise TypeError(f"no form for a mapping from {key!r}")
        encode_value, decode_value = self.form(value).encode, self.form(value).decode

        def encode(mapping: Any) -> dict[str, Any]:
            if encode_value is None:
                return dict(mapping)
            return {name: encode_value(each) for name, each in mapping.items()}

        def decode(document: Any) -> Any:
            return {name: decode_value(each) for name, each in _check_type(dict, document).items()}

        return Form(encode, decode)


_NO_DEFAULT: Any = object()


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _NO_DEFAULT if field.default is dataclasses.MISSING else field.default


def _type_name(document: Any) -> str:
    return "nothing" if document is None else f"a {type(document).__name__}"


def _quoted_name(name: Any) -> str:
    """Return `name` for an error, if it looks like a field and not like a secret."""
    is_name = isinstance(name, str) and len(name) <= 40 and name.isidentifier()
    return repr(name) if is_name else "an invalid name"


def _refuse(document: Any, expected: str) -> NoReturn:
    raise Undecodable(f"{_type_name(document)} is not {expected}")


def _check_type(cls: type, document: Any) -> Any:
    if type(document) is not cls:
        _refuse(document, f"a {cls.__name__}")
    return document


def _atom(cls: type) -> Decode:
    """Accept exactly that type (a bool is not an int), and an int as a float."""
    accepted = (int, float) if cls is float else (cls,)

    def decode(document: Any) -> Any:
        if type(document) not in accepted:
            _refuse(document, f"a {cls.__name__}")
        if cls is float:
            # Whole numbers in JSON may be of any size.
            float(document)
        return document

    return decode


def _enum(cls: type[Enum], tags: Mapping[Enum, str]) -> Form:
    members = {tag: member for member, tag in tags.items()}

    def decode(document: Any) -> Any:
        if not isinstance(document, str):
            _refuse(document, f"a {cls.__name__}")
        if document not in members:
            raise UnknownName(f"{_quoted_name(document)} is not a {cls.__name__}")
        return members[document]

    return Form(tags.__getitem__, decode)


def _optional(form: Form) -> Form:
    encode, decode_some = form.encode, form.decode

    def decode(document: Any) -> Any:
        return None if document is None else decode_some(document)

    if encode is None:
        return Form(None, decode)
    return Form(lambda value: None if value is None else encode(value), decode)


def _sequence(form: Form, written: Callable[[Any], Any], made: Callable[[Any], Any]) -> Form:
    """Return the form of a sequence, which is `written` to JSON and `made` from it."""
    encode, decode_item = form.encode, form.decode

    def decode(document: Any) -> Any:
        return made([decode_item(each) for each in _check_type(list, document)])

    if encode is None:
        return Form(written, decode)
    return Form(lambda values: written([encode(each) for each in values]), decode)


def _decode_bytes(document: Any) -> bytes:
    return b64decode(_check_type(str, document), validate=True)


def _decode_fraction(document: Any) -> Fraction:
    match document:
        case [int(numerator), int(denominator)] if denominator > 0:
            return Fraction(numerator, denominator)
        case _:
            _refuse(document, "a fraction")


def _resources(amount: Resources) -> dict[str, Any]:
    """Write a scalar as a number, ranges as a list and a set as an object, by name."""
    document: dict[str, Any] = dict(amount.scalars)
    for name, ranges in amount.ranges.items():
        document[name] = [list(each) for each in ranges]
    for name, items in amount.sets.items():
        document[name] = {"set": sorted(items)}
    return document


def _decode_resources(document: Any) -> Resources:
    scalars: dict[str, int] = {}
    ranges: dict[str, tuple[Range, ...]] = {}
    sets: dict[str, frozenset[str]] = {}
    for name, value in _check_type(dict, document).items():
        match value:
            case bool():
                _refuse(value, "an amount")
            case int():
                scalars[name] = value
            case list():
                ranges[name] = tuple(map(_decode_range, value))
            case {"set": [*items]} if all(isinstance(item, str) for item in items):
                sets[name] = frozenset(items)
            case _:
                _refuse(value, "an amount")
    return Resources(scalars, ranges, sets)


def _decode_range(document: Any) -> Range:
    match document:
        case [int(begin), int(end)]:
            return begin, end
        case _:
            _refuse(document, "a range")


def error_name(error: CroupierError) -> str:
    """Return the name of the error's class, or of its nearest ancestor in `ERRORS`."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ERRORS)


def _error(error: CroupierError) -> dict[str, str]:
    return {KIND: error_name(error), "text": str(error)}


def _decode_error(document: Any) -> CroupierError:
    match document:
        case {"kind": str(kind), "text": str(text), **rest} if kind in ERRORS and not rest:
            return ERRORS[kind](text)
        case _:
            _refuse(document, "an error")
