"""GrpsMessage as JSON, with the names of `grps.proto`: bodies of REST, and payloads of brpc requests with that
`content_type`.

Lists of numbers are read straight into arrays by `gateway.core.json`. NaN and infinities are written as strings, int64
too, as proto3 has them in JSON, unless the route says otherwise (`translate.nan`).
"""
