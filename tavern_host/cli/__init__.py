"""`tavern`, the command line. Knows how to read arguments and show output; commands do the work.

`tavern --version` is answered before anything else is imported.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run `tavern` with the arguments of the process and exit with its code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from tavern_host import __version__

        print(f"tavern-host {__version__}")
        return
    from tavern_host.cli.garbage import put_off

    put_off()
    # Its plugins would be looked for among all distributions, and imported before anybody has granted them anything.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        if "_TAVERN_COMPLETE" in os.environ:
            from tavern_host.cli.completion import complete

            sys.exit(complete())
        from tavern_host.cli.terminal import run

        sys.exit(run(arguments, owns_process=True))
    except KeyboardInterrupt:  # while it imports
        print("interrupted", file=sys.stderr)
        sys.exit(130)
