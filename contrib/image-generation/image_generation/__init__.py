"""Draws pictures; what it does is in `nodes/draw.py`."""
