"""JSON over HTTP, as a form declares it.

Templates of requests, responses and errors are compiled into an ordinary Protocol.

`form` has the value type of a form, `templates` the language of its bodies, and `protocol` makes a Protocol from a
form. Every Protocol of this package needs a form, so `PROTOCOLS` is empty.
"""

PROTOCOLS = ()
