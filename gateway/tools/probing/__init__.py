"""Detects the protocol, the server type and the models behind an address, without running a model.

- `probe`: Detects the protocols of the server at an address, the server type and the models (`gateway probe`).
- `listing`: Lists a server's models with their signatures (`gateway models`).
- `live`: Checks whether the routes of a configuration match the backends' servers (`gateway check --live`).

The interpretation of responses (`recognition`, `fit`) and the output (`stanza`, `file`) are pure. `asking` and
`listing` send the queries.
"""
