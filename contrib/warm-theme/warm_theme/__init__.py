"""A theme: a style sheet with other values for the page's tokens, and no code."""
