"""Calls of tools that a script in its sandbox makes."""
