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

# Development mode would also check memory for errors of C code, of which there is none here but the
# shim, and makes Python slower by a fifth.
PYTHONMALLOC=default
export PYTHONMALLOC
logs="$(mktemp -d)"
export logs
trap 'rm -rf "$logs"' EXIT

# Shares of the tests: a name, and arguments of pytest. Tests of whole clusters and tests of one part
# with its peers mostly wait; between them are those that compute. The last share of each kind takes
# what the others leave.
cat >"$logs/.shares" <<'END'
unit tests/unit --ignore=tests/unit/sim
page tests/integration/page
whole-1 tests/e2e/test_[a-e]*
agent tests/integration/agent
whole-2 tests/e2e/test_[f-k]*
property tests/property
whole-3 tests/e2e/test_[l-r]*
ctl tests/integration/ctl
whole-4 tests/e2e/test_[!a-r]*
simulator tests/unit/sim tests/scenarios
etcd tests/integration/etcd
parts tests/integration --ignore=tests/integration/agent --ignore=tests/integration/ctl --ignore=tests/integration/etcd --ignore=tests/integration/page
other tests --ignore=tests/unit --ignore=tests/property --ignore=tests/scenarios --ignore=tests/integration --ignore=tests/e2e
END

# Three at a time, from the top. Globs of a share are expanded here.
echo; echo "== pytest, in shares"
result=0
xargs -P 3 -I '{}' sh -c '
    set -- {}
    name=$1; shift
    code=0
    python -X dev -m pytest "$@" >"$logs/$name" 2>&1 || code=$?
    echo "$name: $(tail -n 1 "$logs/$name")"
    exit "$code"
' <"$logs/.shares" || result=1
for log in "$logs"/*; do
    echo; echo "== share ${log##*/}"
    cat "$log"
done
exit "$result"
