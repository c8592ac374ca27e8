"""An outlet in plain JavaScript: the id of each node below it. All of it is in `web/`."""
