"""Sentences of the five specifications, and habits of real peers, each tried with a message of its own."""
