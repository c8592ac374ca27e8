"""Keeps outputs of nodes by signature in a SQLite database, in the project's `.tavern/cache`, for later processes.

Whether the outputs of a node may be used again is not known here; its signature says that.
"""
