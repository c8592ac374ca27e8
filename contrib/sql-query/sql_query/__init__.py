"""Reads databases for agents. Its nodes are in `nodes`, how a database is opened to be read alone in `databases`."""
