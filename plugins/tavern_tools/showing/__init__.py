"""Tools and tasks as people see them: commands and routes."""
