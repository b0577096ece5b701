"""Finds out what model servers are and have, without running a model.

- `probe`: which wire forms a server at an address speaks, its flavor and models (`gateway probe`).
- `listing`: the models of a server with their signatures (`gateway models`).
- `live`: whether the routes of a configuration fit the servers of its backends (`gateway check --live`).

What is concluded from replies (`recognition`, `fit`) and what is written (`stanza`, `file`) is pure; `asking` and
`listing` send the questions.
"""
