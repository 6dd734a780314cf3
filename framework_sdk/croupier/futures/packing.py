"""From functions and arguments to calls: what is pickled, and what calls share.

Rule: a function that is sent by value, and has no state of its own, is sent to a worker once.
Anything else is pickled with each call, so that no call sees what another did to it. Pickling a
function by value takes 0.1 ms, and most programs submit the same one again and again: a stamp shows
whether it is still as it was when it was pickled last.

Pickles are those of cloudpickle, with one namespace for each module.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import itertools
import pickle
import sys
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import cloudpickle

from croupier.futures.call import Call, CallFuture, Function, Terms
from croupier.futures.outcome import TooLarge
from croupier.futures.remote.program import NAMESPACE

# Immutable, and the same everywhere.
SCALARS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
# Equal for the same function only while nothing that is pickled with it has changed. It keeps what
# it names, so identities stay unique.
Stamp: TypeAlias = tuple[Any, ...]


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


def stamp_of(function: Any) -> Stamp | None:
    """Return a stamp; None if changes of what the function uses would not show in it."""
    return _stamp(function, set())


def _stamp(function: FunctionType, seen: set[FunctionType]) -> Stamp | None:
    if function in seen:
        return ()
    seen.add(function)
    if function.__closure__ is not None or function.__dict__ or function.__kwdefaults__:
        return None
    defaults = function.__defaults__ or ()
    if not all(type(value) in SCALARS for value in defaults):
        return None
    parts: list[Any] = [_Same(function.__code__), defaults]
    known = function.__globals__
    for name in _names(function.__code__):
        if name not in known:
            continue
        value = known[name]
        kind = type(value)
        if kind in SCALARS:
            parts.append((name, kind, value))
        elif kind in (ModuleType, BuiltinFunctionType):
            parts.append((name, _Same(value)))
        elif kind is FunctionType:
            inner = _stamp(value, seen)
            if inner is None:
                return None
            parts.append((name, _Same(value), inner))
        else:
            return None
    return tuple(parts)


class _Same:
    """Equal to another for the same object only."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    """Return all names that the code and the functions in it use; some may be no globals."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for each in inner for n in _names(each))]))


class Packer:
    """Makes calls; can be used by several threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._calls = itertools.count(1)
        self._numbers = itertools.count(1)
        self._functions: weakref.WeakValueDictionary[bytes, Function] = (
            weakref.WeakValueDictionary()
        )
        self._stamped: weakref.WeakKeyDictionary[FunctionType, tuple[Any, Function]] = (
            weakref.WeakKeyDictionary()
        )

    def single(
        self, terms: Terms, function: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Call:
        """Return the call of a function; its future has an error if it cannot be sent."""
        return self.mapper(terms, function, is_chunked=False)(args, named)

    def mapper(self, terms: Terms, function: Any, *, is_chunked: bool) -> Callable[..., Call]:
        """Return a function that makes a call of the arguments, or of a list of arguments."""
        try:
            shared = self._shared(function)
        except Exception as error:
            problem = error
            return lambda *_: self._call(terms, b"", error=problem)

        def pack(arguments: Any, named: dict[str, Any] | None = None) -> Call:
            given = (arguments, named or {})
            try:
                payload = dumps(given if shared else (function, *given))
            except Exception as error:
                return self._call(terms, b"", error=error)
            return self._call(terms, payload, shared, is_chunk=is_chunked)

        return pack

    def _call(
        self,
        terms: Terms,
        payload: bytes,
        shared: Function | None = None,
        *,
        is_chunk: bool = False,
        error: Exception | None = None,
    ) -> Call:
        future: CallFuture[Any] = CallFuture(can_stop=terms.can_stop)
        call = Call(next(self._calls), terms, future, payload, shared, is_chunk)
        if call.size > self._max_bytes:
            error = TooLarge(
                f"the function and its arguments have {call.size} bytes pickled, and max_bytes of"
                f" the executor is {self._max_bytes}"
            )
        if error is not None:
            future.set_exception(error)
        return call

    def _shared(self, function: Any) -> Function | None:
        if type(function) is not FunctionType or function.__closure__ is not None:
            return None
        stamp = stamp_of(function)
        if stamp is not None:
            was, known = self._stamped.get(function, (None, None))
            if known is not None and was == stamp:
                return known
        body = dumps(function)
        key = hashlib.sha256(body).digest()
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = Function(next(self._numbers), body)
        if stamp is not None:
            self._stamped[function] = stamp, found
        return found


def pickled_setup(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> bytes:
    """Return what workers run first; empty for nothing.

    Raises Exception if it cannot be pickled.
    """
    return b"" if initializer is None else dumps((initializer, initargs))
