"""The code that the executor sends to a worker: compiled here, for the same Python.

Agents need a Python of the same minor version and the packages that calls import, no more:
cloudpickle is sent too, so both sides have the same release of it.
"""

from __future__ import annotations

import importlib.util
import marshal
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

# The name under which both sides import namespace.py.
NAMESPACE: Final = "_croupier_namespace"
_HERE: Final = Path(__file__).parent
# Modules of this package that workers import, under names that are not below `croupier`, because
# an agent may have another release of that.
_PACKAGE: Final = "croupier.futures.remote."
_PROTOCOL: Final = "from croupier.futures.remote import protocol"
_SENT: Final = ("keeper", "protocol")
# Names in tracebacks of workers.
WORKER_FILE: Final = "<croupier worker>"
# Makes the modules of BUNDLE importable: {name: (whether it is a package, code)}.
_LOADER: Final = """
import importlib.machinery, marshal, sys

class Bundle:
    modules = marshal.loads(BUNDLE)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.modules:
            return None
        is_package = cls.modules[name][0]
        return importlib.machinery.ModuleSpec(name, cls, origin="bundle", is_package=is_package)

    @staticmethod
    def create_module(spec):
        return None

    @classmethod
    def exec_module(cls, module):
        exec(cls.modules[module.__name__][1], module.__dict__)

sys.meta_path.insert(0, Bundle)
exec(marshal.loads(WORKER))
"""


@cache
def boot_source() -> str:
    """Return the text of a worker's command."""
    return (_HERE / "boot.py").read_text()


@cache
def program() -> bytes:
    """Return the marshalled program of a worker."""
    modules = _package("cloudpickle")
    modules[NAMESPACE] = False, _compiled(_HERE / "namespace.py", f"<{NAMESPACE}>")
    for name in _SENT:
        modules[f"_croupier_{name}"] = False, _compiled(_HERE / f"{name}.py", WORKER_FILE)
    bundle = marshal.dumps(modules)
    worker = marshal.dumps(_compiled(_HERE / "worker.py", WORKER_FILE))
    text = f"BUNDLE = {bundle!r}\nWORKER = {worker!r}\n{_LOADER}"
    return marshal.dumps(compile(text, WORKER_FILE, "exec", dont_inherit=True))


def _package(name: str) -> dict[str, tuple[bool, CodeType]]:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    modules: dict[str, tuple[bool, CodeType]] = {}
    for path in sorted(Path(spec.origin).parent.glob("*.py")):
        is_package = path.stem == "__init__"
        module = name if is_package else f"{name}.{path.stem}"
        modules[module] = is_package, _compiled(path, f"<{module}>")
    return modules


def _compiled(path: Path, name: str) -> CodeType:
    text = path.read_text(encoding="utf-8").replace(_PACKAGE, "_croupier_")
    text = text.replace(_PROTOCOL, "import _croupier_protocol as protocol")
    code: CodeType = compile(text, name, "exec", dont_inherit=True)
    return code
