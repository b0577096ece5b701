"""JSON protocols over HTTP that are declared as data, in forms.

Templates of requests, responses and errors are compiled into an ordinary Protocol.

`form` defines the type of a form, `templates` the language of its bodies, and `protocol` makes a Protocol from a form.
Every Protocol of this package needs a form, so `PROTOCOLS` is empty.
"""

PROTOCOLS = ()
