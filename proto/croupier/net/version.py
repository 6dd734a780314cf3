"""The version of the distribution."""

from importlib.metadata import PackageNotFoundError, version


def croupier_version() -> str:
    """As installed; `unknown` when the code runs without being installed."""
    try:
        return version("croupier")
    except PackageNotFoundError:
        return "unknown"
