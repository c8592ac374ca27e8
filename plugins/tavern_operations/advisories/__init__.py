"""Compares what is installed with a database of advisories: `tavern advisories`, and the event `ADVISORY`."""
