"""A clock that the test sets."""


class Clock:
    """Tells `now`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
