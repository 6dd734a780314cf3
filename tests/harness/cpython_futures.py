"""CPython's own tests of executors, from the installed Python or from Debian's package of them."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import cloudpickle

from tests.harness.debian import KEPT, NoProgram, unavailable, unpack

NAME = "test.test_concurrent_futures"
# From Python 3.12 on the tests are a package with these modules.
PARTS = ("executor", "test_as_completed", "test_init", "test_shutdown", "test_wait")


def cpython_modules() -> list[ModuleType]:
    """Return the modules with the tests; skip the test, or fail it in CI, without them."""
    try:
        modules = _installed() or [_downloaded()]
    except NoProgram as reason:
        unavailable(reason)
    for module in modules:
        # Workers need not have them.
        cloudpickle.register_pickle_by_value(module)
    return modules


def _installed() -> list[ModuleType]:
    try:
        whole = importlib.import_module(NAME)
    except ModuleNotFoundError:
        return []
    if not hasattr(whole, "__path__"):
        return [whole]
    return [importlib.import_module(f"{NAME}.{part}") for part in PARTS]


def _downloaded() -> ModuleType:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    file = KEPT / "cpython" / version / "test_concurrent_futures.py"
    if not file.is_file():
        _download(f"libpython{version}-testsuite", version, file)
    spec = importlib.util.spec_from_file_location(NAME, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module


def _download(package: str, version: str, file: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NoProgram(f"this Python has no {NAME}, and there is no apt-get to fetch it with")
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix=f"{package}.") as half:
        tree = Path(half) / "tree"
        tree.mkdir()
        unpack(NAME, package, tree)
        found = tree / f"usr/lib/python{version}/test/test_concurrent_futures.py"
        if not found.is_file():
            raise NoProgram(f"{package} does not hold {NAME}")
        file.parent.mkdir(parents=True, exist_ok=True)
        found.rename(file)
