"""Hooks: which there are, which of them plugins publish, and calling them. Who implements them is `plugins`' to say."""
