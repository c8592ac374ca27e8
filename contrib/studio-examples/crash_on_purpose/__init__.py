"""Fails in the page in every way that a component can. All of it is in `web/`."""
