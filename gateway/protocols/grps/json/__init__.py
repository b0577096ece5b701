"""Converts a GrpsMessage to and from JSON with the names of `grps.proto`. This JSON is the body of REST messages, and
the payload of brpc requests with a JSON `content_type`.

`gateway.core.json` reads lists of numbers directly into arrays. As in proto3's JSON mapping, NaN, infinities and int64
become strings. A route's `translate.nan` can change the form of NaN and infinities.
"""
