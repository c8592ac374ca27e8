"""What others may import of this plugin: what requests of OpenAI's API hold."""
