#!/bin/sh
# The fast loop: unit tests and scenarios that match an expression of `pytest -k`.
#   tests/unit.sh                 all of them
#   tests/unit.sh limit           the first test starts in about a second: only files
#   tests/unit.sh 'limit and role'  that contain one of the words are imported
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
if [ -z "${1:-}" ]; then
    # The simulator's tests take half of the time: beside all others, on another processor.
    log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    .venv/bin/python -m pytest -q -p no:cacheprovider -p no:schemathesis tests/unit/sim >"$log" 2>&1 &
    result=0
    .venv/bin/python -m pytest -q -p no:schemathesis tests/unit tests/scenarios --ignore=tests/unit/sim || result=$?
    wait $! || result=$?
    cat "$log"
    exit "$result"
fi
words="$(echo "$1" | tr -c '[:alnum:]_' '\n' | grep -vxE 'and|or|not|' | paste -sd '|' -)"
[ -n "$words" ] || { echo "unit: T needs a word, such as T=limit" >&2; exit 2; }
# By name or by content.
files="$( (find tests/unit -name 'test_*.py' | grep -iE "$words" || true; \
    grep -rliE --include='test_*.py' "$words" tests/unit) | sort -u)"
if ls tests/scenarios | grep -qiE "$words"; then
    files="$files tests/scenarios"
fi
[ -n "$files" ] || { echo "unit: no test matches '$1'" >&2; exit 1; }
# shellcheck disable=SC2086  # a list of words
exec .venv/bin/python -m pytest -q $files -k "$1"
