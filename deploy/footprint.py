"""Measure an environment that has only Croupier: its packages on disk, and what its programs load.

    python3.11 -m venv ENV && ENV/bin/pip install --no-compile dist/croupier-*.whl
    ENV/bin/python deploy/footprint.py [RUNS]

Sizes are of installed files, without compiled modules. Each start is a new process. The
cheapest of RUNS (5) counts, with compiled modules from the first one on.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

NOT_OURS = ("pip", "setuptools")
STARTS = {
    "`python -c pass`": "pass",
    "`import croupier.sdk`": "import croupier.sdk",
    "`croupier --help`": "from croupier.ctl.__main__ import main; main(['--help'])",
    "`croupier-master`, loaded": "import croupier.master.app",
    "`croupier-agent`, loaded": "import croupier.agent.app",
}
# Names the modules at the end of each start.
REPORT = """
import atexit, sys
atexit.register(lambda: print("loaded", *sys.modules, file=sys.stderr))
"""


def megabytes(package: Distribution) -> float:
    """Return the size of the files of a package, without compiled modules."""
    files = [file for file in package.files or [] if file.suffix != ".pyc"]
    return sum(Path(str(file.locate())).stat().st_size for file in files) / 1e6


def start(code: str) -> tuple[float, list[str]]:
    """Run `code` in a new process; return its seconds of CPU, and the modules it loaded."""
    argv = [sys.executable, "-c", REPORT + code]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, done.stderr.splitlines()[-1].split()[1:]


def main(runs: int) -> None:
    """Print the packages and a table of starts, in Markdown; start each `runs` times."""
    packages = [each for each in distributions() if each.name not in NOT_OURS]
    sizes = {each.name: megabytes(each) for each in packages}
    own = next(each for each in packages if each.name == "croupier")
    modules = [file for file in own.files or [] if file.suffix == ".py"]
    print(f"{len(packages)} packages, {sum(sizes.values()):.1f} MB", end="; ")
    print(f"Croupier itself has {len(modules)} modules, {sizes['croupier']:.1f} MB.")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    print("Largest:", ", ".join(f"{name} {size:.1f} MB" for name, size in largest))
    print("\n| Start | CPU | Modules | Of them Croupier's |\n|---|---|---|---|")
    extra: list[str] = []
    for name, code in STARTS.items():
        starts = [start(code) for _ in range(runs)]
        loaded = starts[0][1]
        ours = [module for module in loaded if module.startswith("croupier.")]
        took = min(seconds for seconds, _ in starts)
        print(f"| {name} | {took * 1000:.0f} ms | {len(loaded)} | {len(ours)} |")
        extra += [module for module in ours if module.startswith("croupier.lab")]
    print("Loaded of the laboratory:", ", ".join(sorted(set(extra))) or "nothing")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
