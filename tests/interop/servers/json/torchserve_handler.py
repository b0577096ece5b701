"""A handler of TorchServe that doubles lists, and counts bytes."""


def handle(rows, context):
    return None if rows is None else [_answered(row) for row in rows]


def _answered(row):
    given = row.get("body", row.get("data"))
    if isinstance(given, (bytes, bytearray)):
        return {"bytes": len(given)}
    return _doubled(given)


def _doubled(numbers):
    if isinstance(numbers, list):
        return [_doubled(each) for each in numbers]
    if numbers < 0:
        raise ValueError("boom")
    return 2.0 * numbers
