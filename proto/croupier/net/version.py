"""The version of the distribution."""


def croupier_version() -> str:
    """Return the installed version; `unknown` if the code runs without being installed."""
    # Imported here, because it takes a tenth of the time in which a command starts.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("croupier")
    except PackageNotFoundError:
        return "unknown"
