"""A client of the bench: reads orders from standard input, a line each, answers in JSON.

    {"run": N}                     N tasks at once; answers when all are known to have ended
    {"one": N, "pause_s": S}       N times one task; answers the seconds of each, [..]

Each kind of client is a module of this folder that calls `serve`. It runs in the Python of the
system that it measures, so it needs nothing but the standard library and that system.
"""

import json
import os
import sys
import time
from collections.abc import Callable

# What the system itself prints goes to standard error.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def serve(run: Callable[[int], None]) -> None:
    """Serve orders until standard input ends; `run` runs tasks and waits for their ends."""
    answer({})
    for line in sys.stdin:
        order = json.loads(line)
        if "run" in order:
            run(order["run"])
            answer({})
        else:
            answer({"seconds": [_one(run, order["pause_s"]) for _ in range(order["one"])]})


def answer(fields: dict[str, object]) -> None:
    """Write one answer."""
    print(json.dumps(fields), file=_answers, flush=True)


def _one(run: Callable[[int], None], pause_s: float) -> float:
    time.sleep(pause_s)
    began = time.perf_counter()
    run(1)
    return time.perf_counter() - began
