"""A theme: colours alone, no code."""
