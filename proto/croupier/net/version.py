"""The version of the distribution."""

# `deploy/dist.sh` writes it into what it builds.
_COMMIT = ""


def croupier_version() -> str:
    """Return the installed version; `unknown` if the code runs without being installed."""
    # Imported here, because it takes a tenth of the time in which a command starts.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("croupier")
    except PackageNotFoundError:
        return "unknown"


def version_line() -> str:
    """Return the version, with the commit that the distribution was built from."""
    return f"{croupier_version()} ({_COMMIT})" if _COMMIT else croupier_version()
