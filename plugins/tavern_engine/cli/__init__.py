"""The engine's commands and what they print. Routes are in `web`."""
