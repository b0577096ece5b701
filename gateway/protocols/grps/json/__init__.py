"""GrpsMessage as JSON, with the names of `grps.proto`: the body of REST messages, and the payload of brpc requests with
a JSON `content_type`.

`gateway.core.json` reads lists of numbers directly into arrays. As in proto3's JSON mapping, NaN, infinities and int64
become strings; `translate.nan` of a route can change the form of NaN and infinities.
"""
