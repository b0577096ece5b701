"""Who clients are: API keys, tokens and certificates, and the principals that they stand for.

Everything here is pure but for reading files: nothing opens a socket or writes. `gateway/assembly/guard.py` joins it
to listeners.
"""
