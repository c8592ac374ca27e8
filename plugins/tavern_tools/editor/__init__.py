"""Editing the project's tool files: where they are, what is wrong with a draft, and what follows from a script."""
