"""JSON schemas of objects, made from their `TypedDict`: one definition for types and schemas.

The docstring of a class is the description of its schema; its `Attributes:` describe the keys.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Schema = dict[str, Any]

_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): ", re.MULTILINE)
_REFERENCE: Final = "#/components/schemas/"


class Schemas:
    """The schemas of objects that a document refers to.

    Attributes:
        components: the schema of each object by its name.
    """

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """Return the schema of a type; one of a `TypedDict` is a reference into `components`.

        Raises:
            TypeError: if JSON has no such type, or two objects have one name.
        """
        if is_typeddict(hint):
            return self._object(hint)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return {**self.of(arguments[0]), **arguments[1]}
        if hint in _PLAIN:
            return {"type": _PLAIN[hint]}
        if hint is Any:
            return {}
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return _union([self.of(each) for each in arguments])
        raise TypeError(f"JSON has no {hint}")

    def _object(self, kind: Any) -> Schema:
        name = kind.__name__
        reference = {"$ref": _REFERENCE + name}
        known = self.components.get(name)
        if known is not None:
            if known.get("x-module") not in (None, kind.__module__):
                raise TypeError(f"two objects are called {name}")
            return reference
        # Before its properties, which may refer to it.
        schema: Schema = {"type": "object", "x-module": kind.__module__}
        self.components[name] = schema
        text = " ".join((kind.__doc__ or name).partition("Attributes:")[0].split())
        described = _descriptions(kind)
        properties = {
            key: self.of(hint) | ({"description": described[key]} if key in described else {})
            for key, hint in get_type_hints(kind, include_extras=True).items()
        }
        del schema["x-module"]
        schema |= {
            "description": text,
            "properties": properties,
            "required": sorted(kind.__required_keys__),
            "additionalProperties": False,
        }
        return reference


def _union(options: list[Schema]) -> Schema:
    """Return one schema of several; plain types become a list of types."""
    if all(set(each) == {"type"} for each in options):
        return {"type": [each["type"] for each in options]}
    return {"anyOf": options}


def _descriptions(kind: Any) -> dict[str, str]:
    """Return the descriptions of keys, from the docstring of a class."""
    parts = _ATTRIBUTE.split((kind.__doc__ or "").replace("\n        ", "\n    "))
    return {
        name: " ".join(text.split()).replace("None", "null")
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
