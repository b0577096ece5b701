"""The maximum distance at which two floats count as equal."""

from typing import Literal

from gateway.core.frozen import frozen


@frozen
class Tolerance:
    """The maximum distance at which two floats count as equal.

    An element equals the expected element if one of these limits is met: their distance is at most `atol + rtol *
    |expected|`, or there are at most `ulp` steps between them. If all limits are 0, values must be identical.

    The tolerance applies to floats. Integers, BOOL, BYTES and infinities must be identical. `nan` determines whether
    NaN is `equal` to NaN or `different` from all values. 0 and -0 are equal."""

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0
    """Units in the last place: the number of steps from one float to the next representable float."""
    nan: Literal["equal", "different"] = "equal"


EXACT = Tolerance()
