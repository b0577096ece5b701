"""Implements the media types of bodies, for `bodies` and `choice`.

A media type determines how a template's document is written, and which responses a client accepts.

The reader converts CSV, JSON lines and form data to the JSON text of the same document, and then reads this text like
any other JSON. The writer converts JSON text to these formats.
"""
