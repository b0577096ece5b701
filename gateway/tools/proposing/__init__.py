"""Proposes forms (JSON over HTTP, described by data) from examples of requests and responses. Pure, except `files`,
which reads the examples."""
