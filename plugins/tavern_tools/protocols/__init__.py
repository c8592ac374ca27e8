"""Text that asks for calls, what is told of them, and prompts."""
