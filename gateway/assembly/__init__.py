"""Builds backends, bridges, policies and routes from a Config, and finds protocols, policies and transports by scanning
their folders. Building an Assembly opens no sockets.
"""
