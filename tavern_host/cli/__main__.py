"""`python -m tavern_host.cli` is `tavern`."""

from tavern_host.cli import main

if __name__ == "__main__":
    main()
