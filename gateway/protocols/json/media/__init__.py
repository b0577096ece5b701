"""Media types of bodies, for `bodies` and `choice`.

A media type determines how the document that a template describes is written, and which responses a client accepts.

CSV, JSON lines and form data are converted to the JSON text of the same document, which is read like all other JSON.
Messages in these formats are also written from JSON text.
"""
