"""The executor that users see."""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from croupier.futures.board import Progress
from croupier.futures.call import Call, Terms, chunks_of, results_in_order
from croupier.futures.engine import Engine
from croupier.futures.packing import Packer, pickled_setup
from croupier.futures.shape import DEFAULT_CPUS, Shape, resources_of, shape_of
from croupier.futures.start import ExecutorSettings, reach_of
from croupier.sdk import Constraint, Credentials, InvalidRequest, Resources

P = ParamSpec("P")
T = TypeVar("T")
RetryOn = type[BaseException] | tuple[type[BaseException], ...]

DEFAULT_MAX_WORKERS: Final = 32
DEFAULT_IDLE_S: Final = 10.0
DEFAULT_MAX_BYTES: Final = 100 * 2**20
_ENGINES: Final[weakref.WeakSet[Engine]] = weakref.WeakSet()


def _close_all() -> None:
    """Finish all calls before the interpreter ends, as other executors do."""
    for engine in list(_ENGINES):
        engine.close(wait=True)


# Functions of `atexit` run after threads were joined; too late for those that our loop needs.
getattr(threading, "_register_atexit", atexit.register)(_close_all)


class CallExecutor(Executor):
    """Runs calls on some terms; what `ClusterExecutor.options` returns."""

    def __init__(
        self, engine: Engine, packer: Packer, terms: Terms, whole: CallExecutor | None = None
    ) -> None:
        """Share the engine of `whole`, which is closed when nothing refers to it any more."""
        self._engine, self._packer, self._terms, self._whole = engine, packer, terms, whole

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` on a worker.

        Both are pickled at once; if that fails, or they are larger than `max_bytes`, the future
        has the error.

        Raises:
            ClusterBroken: if no more calls can run.
            RuntimeError: after `shutdown`.
        """
        return self._submit(self._packer.single(self._terms, fn, args, kwargs))

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return the results of `fn` for each tuple of items, in order.

        Args:
            fn: called with one item of each iterable.
            iterables: consumed at once, unless there is a `buffersize`.
            timeout: seconds from now for all results; then `TimeoutError`.
            chunksize: how many calls are sent as one; more is faster for short calls.
            buffersize: how many chunks are submitted ahead of the results that were taken.

        Raises:
            ValueError: if `chunksize` or `buffersize` is less than 1.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        pack = self._packer.mapper(self._terms, fn, is_chunked=chunksize > 1)
        items = zip(*iterables, strict=False)
        if chunksize == 1:
            submitted = (self._submit(pack(item)) for item in items)
            return results_in_order(submitted, buffersize, timeout)
        chunks = (self._submit(pack(chunk)) for chunk in chunks_of(items, chunksize))
        return _flat(results_in_order(chunks, buffersize, timeout))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the workers end when all calls are over.

        Args:
            wait: until then.
            cancel_futures: cancel the calls that have not begun.
        """
        self._engine.close(wait=wait, cancel=cancel_futures)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut down and wait; after Ctrl-C, without finishing the calls."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._engine.close(wait=True, kill=True)
        else:
            self.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_interrupted = kind is not None and issubclass(
            kind, (KeyboardInterrupt, asyncio.CancelledError)
        )
        await asyncio.to_thread(self._engine.close, wait=True, kill=is_interrupted)

    def _submit(self, call: Call) -> Future[Any]:
        if call.future.done():  # it cannot be sent
            self._engine.check_open()
        else:
            call.future.attach(call, self._engine.cancelled)
            self._engine.submit(call)
        return call.future


class ClusterExecutor(CallExecutor):
    """A `concurrent.futures.Executor` whose calls run on a Croupier cluster.

        with ClusterExecutor(max_workers=20, cpus=1, mem="1GB") as executor:
            for result in executor.map(simulate, range(1000)):
                print(result)

    A worker is a task that runs a Python process. It is launched when calls wait, runs calls one
    after the other, and ends when it was idle for `idle_s`, or with this program.
    """

    def __init__(
        self,
        max_workers: int = DEFAULT_MAX_WORKERS,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        cpus: float | None = None,
        mem: str | None = None,
        resources: Resources | str | None = None,
        constraints: Iterable[Constraint] | None = None,
        limits: str | Mapping[str, str | float] = "",
        image: str = "",
        retries: int = 0,
        retry_on: RetryOn = (),
        cancel_running: bool = False,
        master: str | None = None,
        role: str | None = None,
        name: str = "futures",
        credentials: Credentials | None = None,
        insecure: bool = False,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str = "",
        address: str | None = None,
        listen: str | None = None,
        idle_s: float = DEFAULT_IDLE_S,
        max_bytes: int = DEFAULT_MAX_BYTES,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Describe the executor; it connects with the first call.

        Args:
            max_workers: at most so many workers at once, of all shapes together.
            initializer: called in each worker before its first call. If it fails, the executor is
                broken.
            initargs: its arguments.
            cpus: of a worker; 1 by default.
            mem: of a worker; 512MB by default. A worker gets no more, where agents can enforce it.
            resources: of a worker, in place of `cpus` and `mem`: `cpus:2;mem:4GB;gpus:1`.
            constraints: on the agents.
            limits: further limits of workers, as those of a `Task`.
            image: root file system of workers, as that of a `Task`; it needs a Python of the same
                minor version.
            retries: how often a call is run again after its worker died during the call. By
                default never: it may have had a part of its effects.
            retry_on: exceptions of the call after which it is run again as well.
            cancel_running: let `Future.cancel` end a call that runs, by ending its process.
            master: HOST:PORT, or several joined by commas; None takes CROUPIER_MASTER from the
                environment, or 127.0.0.1:5050.
            role: the role whose share the workers are charged to.
            name: shown to people.
            credentials: for a cluster with authentication; None looks where `Framework` does.
            insecure: send the workers' key even unencrypted to a master on another machine.
            python: program that runs Python on the agents; the path of this one by default.
            env: variables for workers, such as PYTHONPATH.
            user: account that workers run as.
            address: HOST or HOST:PORT at which workers reach this program. By default this
                machine's address on the way to the master, and any free port.
            listen: address to listen on, if it is not the host of `address`.
            idle_s: seconds after which an idle worker ends.
            max_bytes: limit of the pickled arguments of a call, and of its pickled result.
            on_progress: called in the executor's thread whenever the numbers have changed, at most
                20 times a second.

        Raises:
            InvalidRequest: if an argument is invalid.
            ValueError: if `max_workers` is less than 1.
            TypeError: if the initializer cannot be called.
        """
        if max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if not 0 < max_bytes < 2**32 - 2**17:
            raise InvalidRequest("max_bytes must be between 1 and about 4 GB")
        default = Shape(resources_of(DEFAULT_CPUS, None, None) or Resources())
        shape = shape_of(default, cpus, mem, resources, constraints, limits, image, python)
        settings = ExecutorSettings(
            name=name,
            role=role,
            master=master,
            credentials=credentials,
            insecure=insecure,
            env=dict(env or {}),
            user=user,
            reach=reach_of(address, listen, master),
            max_workers=max_workers,
            idle_s=idle_s,
            max_bytes=max_bytes,
            setup=pickled_setup(initializer, initargs),
            on_progress=on_progress,
        )
        settings.task("check", shape)
        terms = Terms(shape, _count("retries", retries), _types(retry_on), cancel_running)
        engine = Engine(settings)
        super().__init__(engine, Packer(max_bytes), terms)
        _ENGINES.add(engine)
        finalizer = weakref.finalize(self, engine.close, wait=False)
        finalizer.atexit = False

    def options(
        self,
        *,
        cpus: float | None = None,
        mem: str | None = None,
        resources: Resources | str | None = None,
        constraints: Iterable[Constraint] | None = None,
        limits: str | Mapping[str, str | float] | None = None,
        image: str | None = None,
        python: str | None = None,
        retries: int | None = None,
        retry_on: RetryOn | None = None,
        cancel_running: bool | None = None,
    ) -> CallExecutor:
        """Return an executor for calls on other terms; what is None stays.

        Calls that need other resources, constraints, limits, image or Python have workers of
        their own, within the same `max_workers`. Shutting it down shuts this executor down.

            executor.options(cpus=4, mem="8GB", retries=3).submit(train, data)

        Raises:
            InvalidRequest: if an argument is invalid.
        """
        old = self._terms
        shape = shape_of(old.shape, cpus, mem, resources, constraints, limits, image, python)
        self._engine.settings.task("check", shape)
        terms = Terms(
            shape,
            old.retries if retries is None else _count("retries", retries),
            old.retry_on if retry_on is None else _types(retry_on),
            old.can_stop if cancel_running is None else cancel_running,
        )
        return CallExecutor(self._engine, self._packer, terms, self)

    def progress(self) -> Progress:
        """Return how many calls wait, run and are over, and how many workers there are."""
        return self._engine.progress()

    def terminate_workers(self) -> None:
        """End the workers at once; calls that are not over get `ClusterBroken`."""
        self._engine.close(wait=True, kill=True)


def _flat(results: Iterator[list[T]]) -> Iterator[T]:
    for chunk in results:
        chunk.reverse()
        while chunk:
            yield chunk.pop()


def _count(name: str, value: int) -> int:
    if value < 0:
        raise InvalidRequest(f"{name} must not be negative")
    return value


def _types(kinds: RetryOn) -> tuple[type[BaseException], ...]:
    found = kinds if isinstance(kinds, tuple) else (kinds,)
    try:
        isinstance(None, found)
    except TypeError:
        raise InvalidRequest("retry_on must be exception types") from None
    return found
