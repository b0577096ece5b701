"""The console: a web page on the admin port, and the JSON API behind it.

The page consists of the files in `files`, which need no build step and no network. The response headers prevent the
browser from loading anything else. The page fetches its data from `/api`, which has the same access rules as `/status`.
"""
