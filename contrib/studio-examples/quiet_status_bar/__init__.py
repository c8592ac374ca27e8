"""An override: a status bar with less in it. All of it is in `web/`."""
