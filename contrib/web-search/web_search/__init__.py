"""A tool that searches the web; what it does is in `nodes/search.py`."""
