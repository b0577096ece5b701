"""The gateway's parts, made of a Config. Nothing here opens a socket."""
