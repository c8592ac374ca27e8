"""Text that asks for calls, the feedback about them, and prompts."""
