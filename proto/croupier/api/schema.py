"""JSON schemas of objects, from the descriptors of their messages and the comments in `.proto`."""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from croupier.api.comments_pb2 import COMMENTS
from croupier.api.forms import Schema, or_null
from croupier.api.objects import Key, keys_of, shape_of

_REFERENCE: Final = "#/components/schemas/"
# What comments call a value that is null in JSON.
_NOTHING: Final = re.compile(r"\b(absent|empty|0)\b")


class Schemas:
    """The schemas of objects that a document refers to, by name in `components`."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._messages: dict[str, Descriptor] = {}

    def of(self, hint: Any) -> Any:
        """Return a schema; messages become references into `components`. Raises TypeError."""
        if isinstance(hint, type):
            return self.of(hint.DESCRIPTOR)  # type: ignore[attr-defined]
        if isinstance(hint, Descriptor):
            return self._object(hint)
        if isinstance(hint, dict):
            return {key: self.of(value) for key, value in hint.items()}
        return [self.of(each) for each in hint] if isinstance(hint, list) else hint

    def _object(self, message: Descriptor) -> Schema:
        shape = shape_of(message)
        name = shape.name or message.name
        if self._messages.setdefault(name, message) is not message:
            raise TypeError(f"two objects are called {name}")
        if name not in self.components:
            # Before its properties, which may refer to it.
            schema = self.components[name] = {"type": "object"}
            keys = keys_of(message)
            required = [each.name for each in keys]
            schema |= {
                "description": COMMENTS[message.full_name],
                "properties": {each.name: self._property(each) for each in keys},
                "required": sorted(required if shape.required is None else shape.required.split()),
                "additionalProperties": False,
            }
        return {"$ref": _REFERENCE + name}

    def _property(self, key: Key) -> Schema:
        schema: Schema = self.of(or_null(key.form.schema) if key.is_nullable else key.form.schema)
        about = key.form.about
        if about is None and key.field is not None:
            about = COMMENTS.get(key.field.full_name, "")
            about = about if about[:2].isupper() else about[:1].lower() + about[1:]
            about = _NOTHING.sub("null", about) if key.is_nullable else about
        return schema | ({"description": about} if about else {})
