"""GrpsMessage as JSON, with the names of `grps.proto`: the body of REST messages, and the payload of brpc requests with
a JSON `content_type`.

`gateway.core.json` reads lists of numbers directly into arrays. NaN, infinities and int64 become strings as in proto3's
JSON mapping, unless the route sets a different form (`translate.nan`).
"""
