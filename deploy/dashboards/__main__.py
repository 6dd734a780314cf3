"""Write the dashboards, or check that they are current."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from deploy.dashboards.capacity import CAPACITY
from deploy.dashboards.fairness import FAIRNESS
from deploy.dashboards.grafana import dashboard_json
from deploy.dashboards.latency import LATENCY
from deploy.dashboards.overview import OVERVIEW
from deploy.dashboards.task_life import TASK_LIFE

FOLDER: Final = Path(__file__).resolve().parents[1] / "grafana/dashboards"
DASHBOARDS: Final = (OVERVIEW, FAIRNESS, LATENCY, CAPACITY, TASK_LIFE)


def files() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        FOLDER / f"{each.name}.json": json.dumps(dashboard_json(each), indent=1) + "\n"
        for each in DASHBOARDS
    }


def main(argv: list[str]) -> int:
    """Write the files, or compare them with `--check`; return the exit code."""
    made = files()
    if argv == ["--check"]:
        known = {path: path.read_text() for path in FOLDER.glob("*.json")}
        if known != made:
            print("the dashboards are not those of the tables: run python -m deploy.dashboards")
        return int(known != made)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
