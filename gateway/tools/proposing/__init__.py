"""Proposes forms (descriptions of JSON APIs over HTTP) from example requests and responses, for `gateway init`. Only
`examples`, which reads the example files, does I/O."""
