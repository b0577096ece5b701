"""GrpsMessage as JSON, of which every member has its name in `grps.proto`: bodies of REST, and the payload of brpc
requests that say so.

Lists of numbers are read straight into arrays by `gateway.json`. NaN and infinities are written as strings, int64 too,
as proto3 has them in JSON, unless the route says otherwise (`translate.nan`).
"""
