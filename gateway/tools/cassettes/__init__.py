"""Cassettes: recorded requests and responses, and their replay (docs/record-and-replay.md)."""
