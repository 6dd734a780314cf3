#!/bin/sh
# Unit, scenario and property tests on every Python from 3.11 to 3.14 that is found.
#   tests/pythons.sh            all tests of these kinds, on all versions
#   tests/pythons.sh newest     what is fast, on the newest version beside that of .venv
# A version is found on PATH or among those of pyenv. Each has its own environment in .venvs.
set -eu
cd "$(dirname "$0")/.."
versions="3.11 3.12 3.13 3.14"
slow="tests/unit/sim"
run=""

find_python() {
    for candidate in "$(command -v "python$1" || true)" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python"$1"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

run_tests() {  # VERSION PYTHON [ARGUMENT OF PYTEST]...
    version="$1"; python="$2"; shift 2
    echo; echo "== Python $version: pytest $*"
    mkdir -p .venvs
    PYTHON="$python" sh deploy/setup.sh dev ".venvs/$version" || return 1
    $run ".venvs/$version/bin/python" -X dev -m pytest -p no:cacheprovider "$@"
}

if [ "${1:-}" = newest ]; then
    sh deploy/setup.sh dev
    ours="$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    newest=""
    for version in $versions; do
        if [ -n "$(find_python "$version")" ]; then newest="$version"; fi
    done
    if [ -z "$newest" ] || [ "$newest" = "$ours" ]; then
        echo "== no Python newer than $ours was found: nothing to test beside it"
        exit
    fi
    run=exec  # so that whoever ends this script ends the tests
    run_tests "$newest" "$(find_python "$newest")" tests/unit tests/scenarios --ignore="$slow"
    exit
fi

tested=""; missing=""; failed=""
for version in $versions; do
    python="$(find_python "$version")"
    if [ -z "$python" ]; then
        missing="$missing $version"
        continue
    fi
    tested="$tested $version"
    run_tests "$version" "$python" tests/unit tests/scenarios tests/property "$@" ||
        failed="$failed $version"
done
echo
echo "== tested on Python:${tested:- none}"
echo "== not found, not tested:${missing:- none}"
echo "== failed on Python:${failed:- none}"
[ -n "$tested" ] && [ -z "$failed" ]
