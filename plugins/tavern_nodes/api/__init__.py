"""What other plugins may import of the basic nodes: macros of prompts, and regular expressions of people."""
