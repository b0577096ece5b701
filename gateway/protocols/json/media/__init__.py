"""Media types of bodies: the spelling of the document that a template describes, and the media types that a client
accepts.

CSV, JSON lines and form data are converted to JSON text of the same document, which is read like all other JSON, and
from which they are written.
"""
