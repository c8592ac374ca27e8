"""What others may import of this plugin: the contracts of agents, their conversations, memory and recordings."""
