"""What `croupier why` is told, in one step."""

from __future__ import annotations

from typing import Any

from croupier.master.services.explanations import view_reasons
from croupier.v1 import operator_pb2 as pb


def explained(*args: Any) -> pb.ExplainResponse:
    """Return the response of `view_reasons`, whose moments pass."""
    explaining = view_reasons(*args)
    while True:
        try:
            next(explaining)
        except StopIteration as end:
            response: pb.ExplainResponse = end.value
            return response
