"""A panel that runs in a sandbox. All of it is in `web/`."""
