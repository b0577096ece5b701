"""The real `umbridge` server, on loopback: `python umbridge_models.py PORT`, in the peer's own environment.

The package has no option for the address and binds every interface, so the function beneath it is told.
"""

import os
import sys
import time
from functools import partial

import umbridge
from aiohttp import web
from functions import DOUBLE, POSTERIOR, TWO

DEADLINE = 60.0  # of the slow model, so that a forgotten call ends


def claimed(model):
    return True


def not_claimed(model):
    return False


class Smooth(umbridge.Model):
    """All four operations of a Function."""

    def __init__(self, name, function):
        super().__init__(name)
        self.function = function

    def get_input_sizes(self, config):
        return list(self.function.input_sizes)

    def get_output_sizes(self, config):
        return list(self.function.output_sizes)

    def __call__(self, parameters, config):
        return self.function.evaluate(parameters)

    def gradient(self, out_wrt, in_wrt, parameters, sens, config):
        return self.function.gradient(out_wrt, in_wrt, parameters, sens)

    def apply_jacobian(self, out_wrt, in_wrt, parameters, vec, config):
        return self.function.apply_jacobian(out_wrt, in_wrt, parameters, vec)

    def apply_hessian(self, out_wrt, in_wrt1, in_wrt2, parameters, sens, vec, config):
        return self.function.apply_hessian(out_wrt, in_wrt1, in_wrt2, parameters, sens, vec)

    supports_evaluate = supports_gradient = supports_apply_jacobian = supports_apply_hessian = claimed


class NoEvaluate(Smooth):
    """Claims the gradient only."""

    supports_evaluate = supports_apply_jacobian = supports_apply_hessian = not_claimed


class EvaluateOnly(umbridge.Model):
    """y = 2x for one number; the base of the models that misbehave."""

    def get_input_sizes(self, config):
        return [1]

    def get_output_sizes(self, config):
        return [1]

    def __call__(self, parameters, config):
        return [[2 * parameters[0][0]]]

    supports_evaluate = claimed


class Scaled(EvaluateOnly):
    """y = scale * x for n numbers, both from the config: the sizes depend on it too."""

    def get_input_sizes(self, config):
        return [config.get("n", 2)]

    def get_output_sizes(self, config):
        return [config.get("n", 2)]

    def __call__(self, parameters, config):
        return [[config.get("scale", 1) * number for number in parameters[0]]]


class Crash(EvaluateOnly):
    def __call__(self, parameters, config):
        raise RuntimeError("the model crashed on purpose")


class Wrong(EvaluateOnly):
    """Returns two vectors where it declared one."""

    def __call__(self, parameters, config):
        return [[1.0], [2.0]]


class Slow(EvaluateOnly):
    """Waits until the file `config["file"]` is there, or for `config["seconds"]`."""

    def __call__(self, parameters, config):
        if "file" in config:
            self.wait_for(config["file"])
        else:
            time.sleep(min(config.get("seconds", 0), DEADLINE))
        return super().__call__(parameters, config)

    @staticmethod
    def wait_for(file):
        deadline = time.monotonic() + DEADLINE
        while not os.path.exists(file) and time.monotonic() < deadline:
            time.sleep(0.005)


MODELS = [
    Smooth("posterior", POSTERIOR),
    Smooth("double", DOUBLE),
    Smooth("two", TWO),
    EvaluateOnly("evaluate_only"),
    NoEvaluate("no_evaluate", TWO),
    Scaled("scaled"),
    Crash("crash"),
    Wrong("wrong"),
    Slow("slow"),
]

if __name__ == "__main__":
    # aiohttp waits 60 s for open calls when it is told to end.
    web.run_app = partial(web.run_app, host="127.0.0.1", shutdown_timeout=0.5, print=None)
    umbridge.serve_models(MODELS, int(sys.argv[1]))
