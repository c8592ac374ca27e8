"""A plugin for tests that brings workflows along."""

from tavern_host import hookimpl


@hookimpl
def tavern_shutdown() -> None:
    """Nothing is open."""
