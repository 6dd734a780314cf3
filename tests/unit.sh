#!/bin/sh
# The fast loop: unit tests and scenarios that match an expression of `pytest -k`.
#   tests/unit.sh                 all of them
#   tests/unit.sh limit           the first test starts in about a second: only files
#   tests/unit.sh 'limit and role'  that contain one of the words are imported
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
if [ -z "${1:-}" ]; then
    # All shares at once: the first two compute, and those of programs and connections also wait.
    logs="$(mktemp -d)"
    trap 'rm -rf "$logs"' EXIT
    result=0
    xargs -P 5 -I '{}' sh -c '
        set -- {}
        log=$1; shift
        .venv/bin/python -m pytest -q -p no:cacheprovider -p no:schemathesis "$@" >"$log" 2>&1
    ' <<END || result=1
$logs/simulator tests/unit/sim tests/scenarios
$logs/master tests/unit/master
$logs/programs tests/unit/apps tests/unit/ctl
$logs/connections tests/unit/net tests/unit/process
$logs/others tests/unit $(printf -- '--ignore=tests/unit/%s ' sim master apps ctl net process)
END
    cat "$logs"/*
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
