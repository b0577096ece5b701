"""The console's playground sends requests that a user composes to a listener, over the listener's protocol.

`form` builds a request from the user's input. `sending` sends the request and records the bytes, and `explaining`
explains it. `shown` formats messages for display. `snippets` generates the same request for other clients. `api` serves
these functions over HTTP."""
