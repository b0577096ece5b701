"""The console: a web page on the admin port, and the JSON API behind it.

The page consists of the files in `files`. They need no build and no network, and the response headers forbid the
browser to load anything else. The page fetches its data from `/api`, with the access rules of `/status`.
"""
