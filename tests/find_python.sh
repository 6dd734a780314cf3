# shellcheck shell=sh
# To be sourced: find_python VERSION prints the path of a Python with venv, or nothing.
# A version is found on PATH or among those of pyenv.
find_python() {
    for candidate in "$(command -v "python$1" || true)" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python"$1"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}
