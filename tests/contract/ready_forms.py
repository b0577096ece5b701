"""The built-in forms as dialects, and the protocols with which they are tested."""

from gateway.assembly.forms import READY
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from tests.contract.flavors import DIALECTS, Dialect


def spoken(name: str, protocol: Protocol) -> Dialect:
    """Return the dialect of a form's client, which uses the first path that it can fill. This path can lack the
    model."""
    models = protocol.traits.models
    first = next(pattern for pattern in protocol.patterns if pattern.startswith("POST "))
    if models.may_be_named and "{model}" not in first:
        models = replace(models, named=False, may_be_named=False)
    traits = replace(protocol.traits, models=models)
    return Dialect(name.removeprefix("json:"), replace(protocol, traits=traits))


FORMS = {name: spoken(name, protocol) for name, protocol in READY.items()}
OTHERS = dict(DIALECTS)
EVERY = FORMS | OTHERS
"""All built-in forms, by protocol name."""
