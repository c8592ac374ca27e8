"""A test plugin with nodes that have buttons, and one that runs in a process of its own."""
