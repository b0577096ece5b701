"""Builds backends, bridges, policies and routes from a Config, and finds protocols, policies and transports by scanning
their folders. No code in this package opens a socket.
"""
