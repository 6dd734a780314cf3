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

# Tests that compute run beside those that wait for real processes, in two shares of about the
# same length. Background jobs ignore SIGINT, so tests of commands run in the foreground.
beside="tests/unit tests/property tests/scenarios"
for part in agent etcd master sdk shim; do
    beside="$beside tests/integration/$part"
done
ahead="tests"
for part in $beside; do
    ahead="$ahead --ignore=$part"
done
log="$(mktemp)"
# shellcheck disable=SC2086  # lists of words
python -X dev -m pytest $beside >"$log" 2>&1 &
computing=$!
trap 'kill "$computing" 2>/dev/null || true; rm -f "$log"' EXIT
result=0
# shellcheck disable=SC2086
step python -X dev -m pytest $ahead || result=$?
wait "$computing" || result=$?
echo; echo "== python -X dev -m pytest $beside"
cat "$log"
exit "$result"
