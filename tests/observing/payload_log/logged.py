"""Entries for tests."""

import numpy as np

from gateway.core.tensors import tensor
from gateway.observing.payload_log.copies import CopyBounds, copied
from gateway.observing.payload_log.events import CallFacts, EventForm, LoggedReply, LoggedRequest

FACTS = CallFacts("id1", "", "m", "", "infer", "route-0", "b", "v2-rest", 1_700_000_000.0)
FORM = EventForm("here")
MESSAGE = copied([tensor("x", np.array([1.0]))], {}, CopyBounds(1000))
REQUEST = LoggedRequest(FACTS, MESSAGE)
REPLY = LoggedReply(FACTS, MESSAGE, 1_700_000_001.0, version="1")
FAILED = LoggedReply(FACTS, None, 1_700_000_001.0, "NOT_FOUND", "model-not-found", "no model 'm'")
