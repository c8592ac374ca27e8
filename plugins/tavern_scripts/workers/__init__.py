"""Interpreters that stay in their sandbox: waiting for a script, or alive between the calls of a session."""
