"""Carrying a plan out: what runs and when, streams, loops, and what is taken down of it."""
