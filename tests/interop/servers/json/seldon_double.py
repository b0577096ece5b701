"""A model of Seldon's microservice, served by gunicorn as `seldon-core-microservice` does, which takes no address."""

import numpy as np
from seldon_core.metrics import SeldonMetrics
from seldon_core.user_model import SeldonComponent
from seldon_core.wrapper import get_rest_microservice


class Double(SeldonComponent):
    def predict(self, given, names):
        if isinstance(given, str):
            return given.upper()
        if isinstance(given, bytes):
            return given[::-1]
        numbers = np.asarray(given)
        if numbers.dtype.kind != "U" and (numbers < 0).any():
            raise ValueError("boom")
        return 2 * numbers


app = get_rest_microservice(Double(), SeldonMetrics())
