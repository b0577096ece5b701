"""Proposes forms (descriptions of JSON APIs over HTTP) from example requests and responses, for `gateway init`. Only
`files`, which reads the examples, does I/O."""
