"""Authentication of clients: API keys, tokens and certificates, and their principals.

Everything here is pure but for reading files: nothing opens a socket or writes.
`gateway/assembly/listener_authentication.py` joins it to listeners.
"""
