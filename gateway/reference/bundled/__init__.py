"""The bundled models, by name."""

from gateway.reference.bundled.arithmetic import add_sub, double
from gateway.reference.bundled.classify import classify
from gateway.reference.bundled.count import count
from gateway.reference.bundled.identity import identity
from gateway.reference.bundled.posterior import posterior
from gateway.reference.bundled.testing import fail, slow
from gateway.reference.bundled.upper import upper

BUNDLED = {model.name: model for model in (identity, double, add_sub, upper, posterior, classify, count, slow, fail)}

__all__ = ["BUNDLED"]
