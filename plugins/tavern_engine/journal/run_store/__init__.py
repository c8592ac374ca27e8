"""Keeps runs: the service `runStore`. They are in the project's `.tavern/runs`, with large values in files beside the
database, or where hosts share a database (`sharedDatabases`), there.

What a run is and how it is carried out is not known here.
"""
