#!/bin/sh
# Make .venv and install Croupier into it, unless that was done already.
#   deploy/setup.sh          for users
#   deploy/setup.sh dev      for developers: also installs what the tests need
#   deploy/setup.sh dev DIR  the same in another directory; PYTHON names the interpreter
set -eu
cd "$(dirname "$0")/.."
extras="${1:-}"
environment="${2:-.venv}"

fail() { echo "setup: $1" >&2; exit 1; }

python="${PYTHON:-python3}"
command -v "$python" >/dev/null 2>&1 || fail "$python not found; Croupier needs Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; Croupier needs Python 3.11 or newer (set PYTHON to use another)"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python has no venv module; install it (Debian: python3-venv)"

# A stamp per kind of installation, which changes with pyproject.toml.
wanted="$(cksum pyproject.toml) ${extras:-user}"
stamp="$environment/installed-${extras:-user}"
if [ -x "$environment/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
echo "setup: installing into $environment (about a minute the first time)"
[ -x "$environment/bin/python" ] || "$python" -m venv "$environment" || fail "could not make $environment"
target="."
[ -z "$extras" ] || target=".[$extras]"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$target" ||
    fail "could not install; is the package registry reachable?"
# With all processors, which pip does not use. Templates that are not Python stay as they are, and
# tests of other packages are a third of all modules.
"$environment/bin/python" -m compileall -q -j 0 -x '/(tests?|pip|setuptools|mypyc)/' "$environment/lib" \
    >/dev/null 2>&1 || true
echo "$wanted" > "$stamp"
[ -n "$extras" ] || cat <<END
setup: Croupier is installed in $environment. Next:
  . $environment/bin/activate      # puts croupier on your PATH
  croupier local                   # a master and three agents, until Ctrl-C
  croupier run -- echo hello       # in another terminal, activated too
docs/first-ten-minutes.md goes on from there.
END
