"""The maximum distance of two floats that count as equal."""

from typing import Literal

from gateway.core.frozen import frozen


@frozen
class Tolerance:
    """The maximum distance of two floats that count as equal.

    An element is equal to the expected element if one of the limits holds: their distance is at most `atol + rtol *
    |expected|`, or there are at most `ulp` steps between them. If all limits are 0, values must be equal.

    The tolerance applies to floats. Integers, BOOL, BYTES and infinities must be equal. `nan` determines whether NaN is
    `equal` to NaN or `different` from all values. 0 and -0 are equal.
    """

    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0
    """Units in the last place: number of steps from a float to the next float of its datatype."""
    nan: Literal["equal", "different"] = "equal"


EXACT = Tolerance()
