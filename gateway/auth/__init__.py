"""Authentication of clients: API keys, tokens and certificates, and the principals that they map to.

Everything in this package is pure except for reading files: it opens no socket and writes nothing.
`gateway/assembly/authentication.py` connects it to listeners.
"""
