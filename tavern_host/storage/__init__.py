"""Storage for the host and for plugins: files confined to a root, SQLite, locks, YAML.

Knows nothing of what is stored.
"""
