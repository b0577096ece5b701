"""A predictor of Cog."""

import time


class Predictor:
    def predict(self, x: list[float] | None = None, fail: bool = False, wait: float = 0) -> list[float]:
        time.sleep(wait)
        # Cog's own `Input`, too, is None where nothing is sent
        if fail or any(each < 0 for each in x):
            raise ValueError("boom")
        return [2 * each for each in x]
