"""The ready forms as dialects, and the protocols beside which they are tried."""

from gateway.assembly.forms import READY
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from tests.contract.flavors import DIALECTS, Dialect


def spoken(name: str, protocol: Protocol) -> Dialect:
    """A form as its client speaks it, which writes the first path that it can fill; that may not name the model."""
    models = protocol.traits.models
    first = next(pattern for pattern in protocol.patterns if pattern.startswith("POST "))
    if models.may_be_named and "{model}" not in first:
        models = replace(models, named=False, may_be_named=False)
    traits = replace(protocol.traits, models=models)
    return Dialect(name.removeprefix("json:"), replace(protocol, traits=traits))


FORMS = {name: spoken(name, protocol) for name, protocol in READY.items()}
OTHERS = dict(DIALECTS)
EVERY = FORMS | OTHERS
"""All of them, by the names of their protocols."""
