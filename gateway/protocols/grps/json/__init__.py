"""GrpsMessage as JSON, with the names of `grps.proto`: bodies of REST, and payloads of brpc requests with a JSON
`content_type`.

Lists of numbers are read directly into arrays by `gateway.core.json`. NaN, infinities and int64 are written as strings
as in proto3's JSON mapping, unless the route sets a different form (`translate.nan`).
"""
