#!/bin/sh
# Build the wheel and the sdist of this checkout: sh deploy/dist.sh [DIRECTORY], or make dist, which
# also tries them. Beside them comes a bill of materials: CycloneDX, NAME-VERSION.cdx.json.
# They have the same bytes each time, on machines with the same C compiler. `croupier --version` of
# them names the commit, with `-dirty` if there are uncommitted changes.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
mkdir -p "${1:-dist}"
out="$(cd "${1:-dist}" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# Only files that belong to the project, with the same permissions everywhere.
git ls-files -z --cached --others --exclude-standard |
    tar --null --files-from - --create --ignore-failed-read 2>/dev/null | tar -x -C "$work"
chmod -R u=rwX,go=rX "$work"
commit="$(git describe --always --exclude '*' --abbrev=12 --dirty)"
sed -i "s/^_COMMIT = .*/_COMMIT = \"$commit\"/" "$work/proto/croupier/net/version.py"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export SOURCE_DATE_EPOCH
.venv/bin/python -m build --no-isolation --outdir "$out" "$work"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"
python3 -m deploy.sbom "$out/croupier-$version"-*.whl >"$out/croupier-$version.cdx.json"
echo "dist: croupier-$version.cdx.json lists what the wheel runs on"
