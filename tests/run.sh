#!/bin/sh
# Every check there is: check.sh, then all tests. Arguments go to pytest: tests/run.sh -k drf
set -eu
cd "$(dirname "$0")/.."
logs="$(mktemp -d)"
export logs
fetching=""
# shellcheck disable=SC2317
clean() { [ -z "$fetching" ] || kill "$fetching" 2>/dev/null || true; rm -rf "$logs"; }
trap clean EXIT

if [ $# = 0 ]; then
    # pip keeps one processor busy. What cannot be fetched is told by the tests that need it.
    "${PYTHON:-python3}" -m tests.harness.debian >"$logs/.fetched" 2>&1 &
    fetching=$!
fi
sh deploy/setup.sh dev
[ -z "$fetching" ] || wait "$fetching" || true
fetching=""
PATH="$PWD/.venv/bin:$PATH"
export PATH

step() { echo; echo "== $*"; "$@"; }

# Most programs that tests start are Python, and start faster when compiled modules are kept.
unset PYTHONDONTWRITEBYTECODE
if [ $# -gt 0 ]; then
    sh tests/check.sh
    step python -X dev -m pytest "$@"
    exit
fi

# Development mode would also check memory for errors of C code, of which there is none here but the
# shim, and makes Python slower by a fifth.
PYTHONMALLOC=default
export PYTHONMALLOC

# Shares: a name, and arguments of pytest; `check` is check.sh. Tests of whole clusters and tests of
# one part with its peers mostly wait; between them are those that compute. The longest come first.
# Services of two clusters may get the same ports: those of whole-1 run one after the other.
cat >"$logs/.shares" <<'END'
whole-1 tests/e2e/test_d* tests/e2e/test_service.py
check
isolation tests/integration/isolation tests/integration/shim
whole-2 tests/e2e/test_[a-ce-f]*
parts tests/integration --ignore=tests/integration/agent --ignore=tests/integration/ctl --ignore=tests/integration/etcd --ignore=tests/integration/isolation --ignore=tests/integration/page --ignore=tests/integration/shim --ignore=tests/integration/sim
unit tests/unit --ignore=tests/unit/sim
whole-3 tests/e2e/test_[g-r]*
property tests/property
page tests/integration/page
whole-4 tests/e2e/test_s[!e]* tests/e2e/test_se[!r]* tests/e2e/test_[!a-s]*
pythons ends
simulator tests/unit/sim tests/integration/sim tests/scenarios
ctl tests/integration/ctl
etcd tests/integration/etcd
agent tests/integration/agent
other tests --ignore=tests/unit --ignore=tests/property --ignore=tests/scenarios --ignore=tests/integration --ignore=tests/e2e
END

# Four at a time, from the top. Globs of a share are expanded here.
echo; echo "== checks and tests, in shares"
result=0
xargs -P 4 -I '{}' sh -c '
    set -- {}
    name=$1; shift
    code=0
    if [ "$name" = check ] || [ "$name" = pythons ]; then
        sh "tests/$name.sh" "$@" >"$logs/$name" 2>&1 || code=1
        echo "$name: $(tail -n 1 "$logs/$name")"
        exit "$code"
    fi
    # The plugin of schemathesis takes half a second to load, and only the tests of the API use it.
    [ "$name" = parts ] || set -- -p no:schemathesis "$@"
    python -X dev -m pytest -o cache_dir="$logs/.cache-$name" "$@" >"$logs/$name" 2>&1 || code=$?
    echo "$name: $(tail -n 1 "$logs/$name")"
    exit "$code"
' <"$logs/.shares" || result=1
for log in "$logs"/*; do
    echo; echo "== share ${log##*/}"
    cat "$log"
done
[ "$result" = 1 ] || exit 0

echo; echo "test: $(cat "$logs"/* | grep -cE '^(FAILED|ERROR) tests/' || true) failed"
cat "$logs"/* | grep -E '^(FAILED|ERROR) tests/' | cut -c1-200
exit 1
