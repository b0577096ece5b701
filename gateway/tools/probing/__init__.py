"""Detects the protocol, the server type and the models of model servers, without running a model.

- `probe`: the protocols of the server at an address, its server type and models (`gateway probe`).
- `listing`: the models of a server with their signatures (`gateway models`).
- `live`: whether the routes of a configuration match the servers of its backends (`gateway check --live`).

The interpretation of replies (`recognition`, `fit`) and the output (`stanza`, `file`) are pure; `asking` and `listing`
send the queries.
"""
