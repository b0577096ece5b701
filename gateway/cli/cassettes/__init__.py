"""Cassettes: recorded requests with their replies, and their replay (docs/record-and-replay.md)."""
