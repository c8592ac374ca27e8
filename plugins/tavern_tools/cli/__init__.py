"""The commands for tools and tasks, and what they print. Routes are in `web`."""
