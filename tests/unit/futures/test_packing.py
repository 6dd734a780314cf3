"""What calls carry, and what they share."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

import cloudpickle
import pytest

from croupier.futures import TooLarge
from croupier.futures.call import Terms
from croupier.futures.packing import Packer, dumps, stamp_of
from croupier.futures.remote.program import NAMESPACE
from croupier.futures.shape import Shape
from croupier.sdk import Resources

TERMS = Terms(Shape(Resources.parse("cpus:1")))

limit: Any = 5
table: dict[str, int] = {}


def limited() -> int:
    return int(limit)


def outer() -> int:
    return limited() + 1


def set_limit(value: int) -> None:
    global limit
    limit = value


def fill() -> None:
    table["key"] = 1


def shown() -> dict[str, int]:
    return table


cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(autouse=True)
def namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test the namespaces of a new process."""
    module = sys.modules[NAMESPACE]
    monkeypatch.setattr(module, "_SPACES", {})
    monkeypatch.setattr(module, "_RECEIVED", {})
    monkeypatch.setitem(globals(), "limit", 5)
    monkeypatch.setitem(globals(), "table", {})


def received(function: Any) -> Any:
    """Return the function as a worker has it."""
    return pickle.loads(dumps(function))


def test_a_global_that_the_worker_set_stays_until_the_program_changes_it() -> None:
    received(set_limit)(7)
    assert received(limited)() == 7
    assert limit == 5, "here it is another"
    assert received(limited)() == 7
    set_limit(9)
    assert received(limited)() == 9


def test_a_global_that_the_worker_filled_stays() -> None:
    received(fill)()
    assert received(shown)() == {"key": 1}
    assert table == {}


def test_a_function_that_the_program_defined_again_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received(outer)() == 6
    monkeypatch.setitem(globals(), "limited", lambda: 100)
    assert received(outer)() == 101


def test_a_function_is_pickled_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = Packer(1000_000)

    def function_of_call() -> Any:
        call = packer.single(TERMS, outer, (), {})
        assert not call.future.done()
        return call.function

    first = function_of_call()
    assert first is not None
    assert function_of_call() is first
    monkeypatch.setitem(globals(), "limit", 6)
    assert function_of_call() is not first
    monkeypatch.setitem(globals(), "limit", 5)
    assert function_of_call().body == first.body
    monkeypatch.setitem(globals(), "limited", lambda: 100)
    assert function_of_call().body != first.body


def test_what_may_change_unseen_has_no_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stamp_of(limited) == stamp_of(limited)
    assert stamp_of(shown) is None
    monkeypatch.setitem(globals(), "limit", [])
    assert stamp_of(outer) is None


def test_equal_numbers_of_other_types_are_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "limit", 1)
    before = stamp_of(limited)
    monkeypatch.setitem(globals(), "limit", True)
    assert stamp_of(limited) != before


def test_objects_and_closures_are_pickled_with_each_call() -> None:
    packer = Packer(1000_000)
    count = [0]
    for function in (lambda: count, count.append, print):
        call = packer.single(TERMS, function, (), {})
        assert (call.function, call.future.done()) == (None, False)


def test_errors_of_pickling_and_large_calls_are_returned() -> None:
    packer = Packer(1000)
    locked = packer.single(TERMS, id, (threading.Lock(),), {})
    large = packer.single(TERMS, len, (bytes(1000),), {})
    assert isinstance(locked.future.exception(), TypeError)
    assert isinstance(large.future.exception(), TooLarge)
    lock = threading.Lock()
    pack = packer.mapper(TERMS, lambda: lock, is_chunked=False)
    assert isinstance(pack(()).future.exception(), TypeError)
