"""Outputs that hold for another run: in memory, and on disk where it is asked for."""
