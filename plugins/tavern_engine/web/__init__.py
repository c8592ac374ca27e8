"""The engine's routes and socket messages. Commands are in `cli`."""
