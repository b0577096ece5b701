"""Detects the protocol, the server type and the models of model servers, without running a model.

- `probe`: the protocols of the server at an address, its server type and models (`gateway probe`).
- `listing`: the models of a server with their signatures (`gateway models`).
- `live`: whether the routes of a configuration fit the servers of its backends (`gateway check --live`).

What is concluded from replies (`recognition`, `fit`) and what is written (`stanza`, `file`) is pure; `asking` and
`listing` send the questions.
"""
