"""JSON protocols over HTTP that are declared as data, in forms.

A form's templates of requests, responses and errors are compiled into an ordinary Protocol.

`form` defines the type of a form, `templates` defines the language of its bodies, and `protocol` creates a Protocol
from a form. `PROTOCOLS` is empty, because every Protocol of this package needs a form.
"""

PROTOCOLS = ()
