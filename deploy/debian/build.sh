#!/bin/sh
# Build a Debian package of Croupier: sh deploy/debian/build.sh [DIRECTORY], or make deb.
# It has an environment of its own in /usr/lib/croupier, of the pinned packages by hash, with their
# compiled modules for every Python in PYTHONS: it installs where one of these is python3, and
# outlives the upgrade of python3 to another one. PYTHON is the interpreter that builds it.
set -eu
cd "$(dirname "$0")/../.."
out="${1:-dist}"
python="${PYTHON:-/usr/bin/python3}"
extras="oidc yaml"
PYTHONS="3.11 3.12 3.13"
# No release with such a Python has an older C library.
platforms="--platform manylinux_2_28_$(uname -m) --platform manylinux_2_17_$(uname -m) --platform manylinux2014_$(uname -m)"

fail() { echo "deb: $1" >&2; exit 1; }
command -v dpkg-deb >/dev/null 2>&1 || fail "dpkg-deb not found; build on Debian or Ubuntu"
"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$python must be Python 3.11 or newer with venv (apt-get install python3-venv)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
root="$work/root"
home="$root/usr/lib/croupier"
version="$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')"
first="${PYTHONS%% *}"
last="${PYTHONS##* }"
next="${last%.*}.$((${last#*.} + 1))"
arch="$(dpkg --print-architecture)"

# pip is no part of the package.
"$python" -m venv "$work/tools"
pip="$work/tools/bin/python -m pip --disable-pip-version-check --quiet"
$pip wheel --no-deps --wheel-dir "$work/wheel" . || fail "cannot build the wheel"
# shellcheck disable=SC2086
"$python" deploy/locked.py $extras > "$work/lock"
packages="$home/lib/python$first/site-packages"
mkdir -p "$home/bin" "$packages"
for minor in $PYTHONS; do
    # shellcheck disable=SC2086
    $pip install --no-compile --only-binary :all: --python-version "$minor" $platforms \
        --require-hashes --target "$work/$minor" -r "$work/lock" || fail "cannot install the pinned packages"
    rm -rf "$work/$minor/bin"
    # Compiled modules have the version in their names; everything else is the same.
    cp -an "$work/$minor/." "$packages/"
    [ "$minor" = "$first" ] || ln -s "python$first" "$home/lib/python$minor"
done
$pip install --no-compile --no-deps --target "$work/own" "$work"/wheel/*linux*.whl ||
    fail "cannot install the wheel with compiled programs: is there a C compiler?"
mv "$work"/own/bin/croupier* "$home/bin/"
rm -rf "$work/own/bin"
cp -a "$work/own/." "$packages/"

mkdir -p "$root/usr/bin" "$root/etc/croupier" "$root/usr/share/doc/croupier" \
    "$root/usr/lib/systemd/system" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d" "$root/DEBIAN"
for name in croupier croupier-master croupier-agent; do
    sed -i "1s|.*|#!/usr/lib/croupier/bin/python|" "$home/bin/$name"
    ln -s "../lib/croupier/bin/$name" "$root/usr/bin/$name"
done
ln -sfn /usr/bin/python3 "$home/bin/python3"
ln -sfn python3 "$home/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$home/pyvenv.cfg"
cp deploy/systemd/*.service deploy/systemd/*.timer "$root/usr/lib/systemd/system/"
cp deploy/systemd/sysusers.conf "$root/usr/lib/sysusers.d/croupier.conf"
cp deploy/systemd/tmpfiles.conf "$root/usr/lib/tmpfiles.d/croupier.conf"
cp deploy/systemd/master.toml deploy/systemd/agent.toml "$root/etc/croupier/"
cp LICENSE CHANGELOG.md "$root/usr/share/doc/croupier/"
cp deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN/"
printf '/etc/croupier/master.toml\n/etc/croupier/agent.toml\n' > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/control" <<END
Package: croupier
Version: $version
Architecture: $arch
Maintainer: The Croupier authors <croupier@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: python3 (>= $first), python3 (<< $next), libc6 (>= 2.28), init-system-helpers
Recommends: bubblewrap, runc | crun, skopeo, umoci
Description: deals a cluster's resources to many frameworks, fairly
 The master, the agent, the command and the Python SDK of Croupier, with systemd units.
END
# Files belong to root, no matter which user builds; directories are not writable by others.
chmod -R u+rwX,go+rX,go-w "$root"
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$root/DEBIAN/postrm"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/croupier_${version}_$arch.deb"
