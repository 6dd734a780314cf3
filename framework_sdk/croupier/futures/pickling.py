"""Pickles for workers: those of cloudpickle, with one namespace for each module."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import pickle
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import cloudpickle

from croupier.futures.remote.program import NAMESPACE

# Immutable, and the same everywhere.
SCALARS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def _loaded_namespace() -> ModuleType:
    path = Path(__file__).parent / "remote" / "namespace.py"
    spec = importlib.util.spec_from_file_location(NAMESPACE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAMESPACE] = module
    spec.loader.exec_module(module)
    return module


_namespace: Final = sys.modules.get(NAMESPACE) or _loaded_namespace()


def dumps(content: object) -> bytes:
    """Return the pickle of `content`, for a worker.

    Raises:
        Exception: whatever its parts raise.
    """
    if type(content) is tuple and _is_plain(content):
        return pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    with io.BytesIO() as file:
        _Pickler(file).dump(content)
        return file.getvalue()


def _is_plain(content: tuple[Any, ...]) -> bool:
    """Return whether `content` is arguments (a tuple, and no names) that pickle alone can do."""
    if len(content) != 2 or content[1] or type(content[0]) is not tuple:
        return False
    return all(type(value) in SCALARS for value in content[0])


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a function that is sent by value so that it shares its globals with others."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._digests: dict[int, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        """Change how functions are pickled by value."""
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented or type(obj) is not FunctionType:
            return reduced
        make, (code, basics, *others), state, items, pairs, set_state = reduced
        known = obj.__globals__
        key = f"{known.get('__name__')}:{id(known)}"
        digests = {name: self._digest(value) for name, value in state[1]["__globals__"].items()}
        return (
            make,
            (code, _namespace.Space(key, basics), *others),
            (key, digests, state, set_state),
            items,
            pairs,
            _namespace.set_state,
        )

    def _digest(self, value: object) -> Any:
        """Return something that differs when the value was changed."""
        if type(value) in SCALARS and not (isinstance(value, (str, bytes)) and len(value) > 64):
            return value
        if isinstance(value, ModuleType):
            return value.__name__
        found = self._digests.get(id(value))
        if found is None:
            found = hashlib.sha256(cloudpickle.dumps(value)).digest()
            self._digests[id(value)] = found
        return found
