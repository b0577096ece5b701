"""From a Config to the values that answer requests: backends, bridges, routes. Nothing here opens a socket."""
