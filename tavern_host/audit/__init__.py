"""The audit log: entries, and the sealed log that they are kept in. Commands are in `cli`."""
