"""The routes for tools, tasks and approvals. Commands are in `cli`."""
