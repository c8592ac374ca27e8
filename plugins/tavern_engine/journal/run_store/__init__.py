"""Keeps runs in a SQLite database and large values in files, in the project's `.tavern/runs`: the service `runStore`.

What a run is and how it is carried out is not known here.
"""
