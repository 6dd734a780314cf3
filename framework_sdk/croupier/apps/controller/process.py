"""The process of an application: its event loop, and its credentials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from croupier.cli.connection import Refused, with_advice
from croupier.cli.flags import Target
from croupier.model.errors import InvalidRequest, PermissionDenied, Unauthenticated
from croupier.process.daemon import raise_file_limit
from croupier.sdk import Credentials


def run_application(target: Target, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main`; return its exit code.

    Raises CroupierError as `main` does, with advice about credentials.
    """
    raise_file_limit()
    # The lines of applications say what users need.
    logging.getLogger("croupier.sdk").disabled = True
    try:
        return asyncio.run(main())
    except InvalidRequest as error:
        # The command line is valid: the master has refused it.
        raise Refused(str(error)) from None
    except (Unauthenticated, PermissionDenied) as error:
        raise with_advice(error, target.credentials()) from None


async def first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of `futures` is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def framework_credentials(target: Target) -> Callable[[], Credentials]:
    """Return a function that looks up the credentials of `target` for the SDK."""
    return lambda: Credentials(**asdict(target.security()))
