"""The console's playground sends requests that a user composes to a listener, over the listener's protocol.

`form` builds a request from the user's input. `sending` sends it and records the bytes. `explaining` explains it.
`shown` formats messages for display. `snippets` generates the same request for other clients. `api` serves all of this
over HTTP."""
