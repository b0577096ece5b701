"""The console: a web page on the admin port, and the JSON API behind it.

The page is made of the files in `files`; they need no build and no network, and the browser is told to load nothing
else. What the page shows it asks for at `/api`: the same rules as for `/status` decide who may read that.
"""
