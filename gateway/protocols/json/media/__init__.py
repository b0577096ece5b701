"""Media types of bodies: how the document that a template describes is spelled, and which of them a client accepts.

CSV, JSON lines and form data are turned into the JSON text of the same document, which is read as every other JSON, and
written from it.
"""
