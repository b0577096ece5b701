"""Detects the protocol, the server type and the models behind an address, without running a model.

- `probe`: The protocols of the server at an address, its server type and models (`gateway probe`).
- `listing`: A server's models with their signatures (`gateway models`).
- `live`: Checks if the routes of a configuration match its backends' servers (`gateway check --live`).

The interpretation of replies (`recognition`, `fit`) and the output (`stanza`, `file`) are pure; `asking` and `listing`
send the queries.
"""
