"""Proposes forms (JSON over HTTP, described by data) from examples of requests and replies. Everything is pure but
`files`, which reads them."""
