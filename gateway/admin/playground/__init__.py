"""The playground of the console: requests that people write by hand, sent to a listener as a client of it sends them.

`form` makes a request of what was typed, `sending` sends it over the listener's own protocol and notes the bytes,
`shown` writes messages for people, `snippets` has the same request for other clients, `api` serves all of this.
"""
