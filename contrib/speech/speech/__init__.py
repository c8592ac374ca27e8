"""Speaks texts; what it does is in `nodes/say.py`."""
