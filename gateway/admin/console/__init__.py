"""The console: a web page on the admin port, and the JSON API behind it.

The page consists of the files in `files`, which need no build step and no network. The response headers forbid the
browser to load anything else. The page fetches its data from `/api`, to which the access rules of `/status` apply.
"""
