"""Settings of the whole suite."""

import os

# Before anything imports the gateway: a test fails where a value is changed in place.
os.environ.setdefault("GATEWAY_FROZEN_VALUES", "1")

from hypothesis import HealthCheck, settings

# What hypothesis measures in seconds is how busy the machine is: the first draw on a loaded one fails as "too slow".
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
