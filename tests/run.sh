#!/bin/sh
# Every check there is: check.sh, then all tests. Arguments go to pytest: tests/run.sh -k drf
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
PATH="$PWD/.venv/bin:$PATH"
export PATH

step() { echo; echo "== $*"; "$@"; }

sh tests/check.sh
# Most programs that tests start are Python, and start faster when compiled modules are kept.
unset PYTHONDONTWRITEBYTECODE
if [ $# -gt 0 ]; then
    step python -X dev -m pytest "$@"
    exit
fi

# Three shares side by side, which take about as long: tests that compute, tests of one part with
# its peers, and tests of whole clusters. Development mode would also check memory for errors of C
# code, of which there is none here but the shim, and makes Python slower by a fifth.
PYTHONMALLOC=default
export PYTHONMALLOC
computing="tests/unit tests/property tests/scenarios"
parts="tests/integration"
rest="tests"
for part in $computing $parts; do
    rest="$rest --ignore=$part"
done
logs="$(mktemp -d)"
# shellcheck disable=SC2086  # lists of words
python -X dev -m pytest $computing >"$logs/computing" 2>&1 & first=$!
# shellcheck disable=SC2086
python -X dev -m pytest $parts >"$logs/parts" 2>&1 & second=$!
trap 'kill "$first" "$second" 2>/dev/null || true; rm -rf "$logs"' EXIT
result=0
# shellcheck disable=SC2086
step python -X dev -m pytest $rest || result=$?
wait "$second" || result=$?
wait "$first" || result=$?
for share in parts computing; do
    echo; echo "== the share of $share"
    cat "$logs/$share"
done
exit "$result"
