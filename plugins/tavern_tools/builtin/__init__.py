"""What the host itself offers as tools: the time, its tools and tasks, and the project's files."""
