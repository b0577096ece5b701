"""Detects the protocol, the server type and the models at an address, without running a model.

- `probe`: Detects the protocols of the server at an address, the server type and the models (`gateway probe`).
- `listing`: Lists a server's models with their signatures (`gateway models`).
- `live`: Checks whether the routes of a configuration match the backends' servers (`gateway check --live`).

Only `asking` and `listing` send queries. The modules that interpret responses (`recognition`, `fit`) and write output
(`stanza`) are pure.
"""
