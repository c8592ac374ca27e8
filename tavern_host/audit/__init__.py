"""The audit log: entries, the hash-chained table that they are kept in, and its anchor. Commands are in `cli`."""
