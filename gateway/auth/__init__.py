"""Authentication of clients: API keys, tokens and certificates, and the principals to which they map.

This package opens no socket; it reads key files, and only `key_changes` writes them.
`gateway/assembly/authentication.py` connects the package to listeners.
"""
