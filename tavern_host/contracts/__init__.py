"""Data and interfaces that plugins exchange. Imports pydantic and the standard library only."""
