"""The version of the distribution."""

from importlib.metadata import PackageNotFoundError, version


def croupier_version() -> str:
    """Return the installed version; `unknown` if the code runs without being installed."""
    try:
        return version("croupier")
    except PackageNotFoundError:
        return "unknown"
