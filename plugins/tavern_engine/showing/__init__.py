"""Runs and nodes as people see them: routes, messages, commands and what they print."""
