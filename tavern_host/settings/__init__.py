"""Layered settings of plugins: storage, secrets, and the service. Routes are in `server`, commands in `cli`."""
