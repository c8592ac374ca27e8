"""Reads feeds into a knowledge base; the node in `nodes/read_feeds.py` does it, the folders beside it say when."""
