#!/bin/sh
# Every check there is. Arguments go to pytest: tests/run.sh -k drf
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
PATH="$PWD/.venv/bin:$PATH"
export PATH

step() { echo; echo "== $*"; "$@"; }

step ruff format --check .
step ruff check .
step mypy
step lint-imports --no-cache
step buf lint proto
step python proto/generate.py --check
if [ $# -gt 0 ]; then
    step python -X dev -m pytest "$@"
    exit
fi

# What computes runs beside what mostly waits for real processes.
log="$(mktemp)"
python -X dev -m pytest tests/unit tests/property tests/scenarios >"$log" 2>&1 &
computing=$!
trap 'kill "$computing" 2>/dev/null || true; rm -f "$log"' EXIT
result=0
step python -X dev -m pytest tests/integration tests/e2e || result=$?
wait "$computing" || result=$?
echo; echo "== python -X dev -m pytest tests/unit tests/property tests/scenarios"
cat "$log"
exit "$result"
