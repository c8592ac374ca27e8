"""Hooks: which there are, the rules that they keep, and how they are called. It knows no manifest and no grant."""
