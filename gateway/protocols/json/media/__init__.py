"""Media types of bodies.

They determine how the document that a template describes is written, and which responses a client accepts.

CSV, JSON lines and form data are converted to JSON text of the same document, which is read like all other JSON, and
are written from JSON text.
"""
