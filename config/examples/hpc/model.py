"""A UM-Bridge model server. Its model returns how much of a substance remains at three times, given the amount and the
decay rate."""

import math
import os
import time

import umbridge

TIMES = (1.0, 2.0, 3.0)
SECONDS = 0.02
"""Simulated computing time of a real model, in seconds."""


def decay(amount, rate):
    return [amount * math.exp(-rate * each) for each in TIMES]


class Decay(umbridge.Model):
    def __init__(self):
        super().__init__("decay")

    def get_input_sizes(self, config):
        return [2]

    def get_output_sizes(self, config):
        return [len(TIMES)]

    def __call__(self, parameters, config):
        time.sleep(SECONDS)
        return [decay(*parameters[0])]

    def supports_evaluate(self):
        return True


if __name__ == "__main__":
    umbridge.serve_models([Decay()], int(os.environ["PORT"]))
