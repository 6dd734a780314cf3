"""Regenerate the Python code of the `.proto` files under `croupier`, or check that it is current.

    python proto/generate.py            write the generated code
    python proto/generate.py --check    exit 1 if the committed code is stale

The generators have an environment of their own: their versions are the floor of the package's
dependencies, and would keep the others from newer versions.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
import venv
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PACKAGES = (Path("croupier/v1"), Path("croupier/api"), Path("croupier/etcd/v3"))
GENERATORS = ("grpcio-tools==1.76.0", "mypy-protobuf==5.1.0", "setuptools==80.9.0")
ENVIRONMENT = (ROOT.parent / ".venv").resolve() / "generators"


def main() -> int:
    """Write the generated code, or with `--check` compare it and return 1 if it differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 if stale")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        stale = [
            package / name
            for package in PACKAGES
            for name in differing(Path(scratch) / package, ROOT / package)
        ]
        if check:
            for path in stale:
                print(f"stale: proto/{path}; run: python proto/generate.py")
            return 1 if stale else 0
        for path in stale:
            fresh = Path(scratch) / path
            if fresh.exists():
                shutil.copyfile(fresh, ROOT / path)
            else:
                (ROOT / path).unlink()
            print(f"wrote proto/{path}")
    return 0


def generate(out: Path) -> None:
    """Run protoc into `out`."""
    bin_dir = generators() / "bin"
    descriptors = out / "descriptors"
    protos = sorted(
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).glob("*.proto")
    )
    subprocess.run(
        [
            str(bin_dir / "python"),
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={ROOT}",
            f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={bin_dir / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet,only_async,generate_concrete_servicer_stubs:{out}",
            f"--descriptor_set_out={descriptors}",
            "--include_source_info",
            *protos,
        ],
        check=True,
        cwd=ROOT,
    )
    comments = [ROOT / "comments.py", descriptors, out / "croupier/api/comments_pb2.py"]
    subprocess.run([bin_dir / "python", *comments], check=True)


def generators() -> Path:
    """Return the environment of the generators; make it if it is missing or outdated."""
    stamp = ENVIRONMENT / "generators.txt"
    wanted = "\n".join(GENERATORS)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        # This interpreter's pip saves seconds, and so do modules that are compiled when imported.
        has_pip = find_spec("pip") is not None
        venv.create(ENVIRONMENT, with_pip=not has_pip)
        python = str(ENVIRONMENT / "bin/python")
        pip = (
            [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
        )
        subprocess.run([*pip, "install", "--quiet", "--no-compile", *GENERATORS], check=True)
        stamp.write_text(wanted)
    return ENVIRONMENT


def differing(fresh: Path, committed: Path) -> list[str]:
    """Return the names of generated files that differ, or exist on one side only."""
    names = {path.name for side in (fresh, committed) for path in side.glob("*_pb2*")}
    return sorted(
        name
        for name in names
        if not (fresh / name).exists()
        or not (committed / name).exists()
        or not filecmp.cmp(fresh / name, committed / name, shallow=False)
    )


if __name__ == "__main__":
    sys.exit(main())
