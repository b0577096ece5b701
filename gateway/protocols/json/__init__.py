"""JSON over HTTP, as a form declares it: templates of requests, replies and errors, compiled into an ordinary Protocol.

`form` has the value that a form is, `templates` the language of its bodies, `protocol` makes a Protocol of it. There is
none without a form, so `PROTOCOLS` is empty.
"""

PROTOCOLS = ()
