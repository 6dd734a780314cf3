#!/bin/sh
# Unit, scenario and property tests on every Python from 3.11 to 3.14 that is found.
#   tests/pythons.sh [ARGUMENT OF PYTEST]...
# A version is found on PATH or among those of pyenv. Each has its own environment in .venvs.
set -eu
cd "$(dirname "$0")/.."
versions="3.11 3.12 3.13 3.14"

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
    ".venvs/$version/bin/python" -X dev -m pytest -p no:cacheprovider "$@"
}

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
