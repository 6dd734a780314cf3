"""Write the generated pages and pictures of docs, or check that they are current.

python -m docs.site.reference            write the pages
python -m docs.site.reference --check    exit 1 if a committed page is stale
"""

from __future__ import annotations

import argparse
import os
import sys

from docs.site.reference.pages import FOLDER, generated


def main() -> int:
    """Write the pages, or with `--check` compare them and return 1 if one differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 if stale")
    check: bool = parser.parse_args().check
    stale = False
    for name, text in generated():
        path = FOLDER / name
        if path.is_file() and path.read_text() == text:
            continue
        stale = True
        if check:
            print(f"stale: docs/{name}; run: make reference")
        else:
            path.write_text(text)
            print(f"wrote docs/{name}")
    return int(check and stale)


if __name__ == "__main__":
    # Defaults of flags are those without settings of this user.
    for variable in [name for name in os.environ if name.startswith("CROUPIER_")]:
        del os.environ[variable]
    sys.exit(main())
