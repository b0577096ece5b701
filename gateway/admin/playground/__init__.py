"""The playground of the console: sends handwritten requests to a listener, over the listener's protocol.

`form` makes a request from the user's input. `sending` sends it over the listener's own protocol and records the bytes.
`shown` formats messages for users. `snippets` generates the same request for other clients. `api` serves all of this.
"""
