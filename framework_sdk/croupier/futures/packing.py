"""From functions and arguments to calls: what is pickled, and what calls share.

Rule: a function that is sent by value, and has no state of its own, is sent to a worker once.
Anything else is pickled with each call, so that no call sees what another did to it.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

from croupier.futures.call import Call, CallFuture, Function, Terms
from croupier.futures.errors import TooLarge
from croupier.futures.pickling import dumps
from croupier.futures.stamp import stamp_of

# The call, and the error that it ends with at once, or None.
Packed: TypeAlias = tuple[Call, BaseException | None]


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
    ) -> Packed:
        """Return the call of a function."""
        try:
            shared = self._shared(function)
            content = (args, named) if shared else (function, args, named)
            return self._call(terms, dumps(content), shared, is_chunk=False)
        except Exception as error:
            return self._failed(terms, error)

    def mapper(self, terms: Terms, function: Any, *, is_chunked: bool) -> Callable[[Any], Packed]:
        """Return a function that makes a call of the arguments, or of a list of arguments."""
        try:
            shared = self._shared(function)
        except Exception as error:
            problem = error
            return lambda _: self._failed(terms, problem)

        def pack(arguments: Any) -> Packed:
            content = (arguments, {}) if shared else (function, arguments, {})
            try:
                return self._call(terms, dumps(content), shared, is_chunk=is_chunked)
            except Exception as error:
                return self._failed(terms, error)

        return pack

    def _call(
        self, terms: Terms, payload: bytes, shared: Function | None, *, is_chunk: bool
    ) -> Packed:
        future: CallFuture[Any] = CallFuture(can_stop=terms.can_stop)
        call = Call(next(self._calls), terms, future, payload, shared, is_chunk)
        if call.size <= self._max_bytes:
            return call, None
        return call, TooLarge(
            f"the function and its arguments have {call.size} bytes pickled, and max_bytes of the"
            f" executor is {self._max_bytes}"
        )

    def _failed(self, terms: Terms, error: BaseException) -> Packed:
        return Call(next(self._calls), terms, CallFuture(), b""), error

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

    Raises:
        Exception: if it cannot be pickled.
    """
    return b"" if initializer is None else dumps((initializer, initargs))
