"""The chart shows each row that has an adapter, in proportion."""

from typing import Any
from xml.etree import ElementTree

from tests.benchmarks.charts import ADAPTER, GATEWAY, LONGEST, chart


def row(name: str, gateway: float, adapter: float) -> dict[str, Any]:
    return {"row": name, "gateway": {"cpu": gateway}, "adapter": {"cpu": adapter}}


def test_bars_are_in_proportion_and_rows_without_an_adapter_are_left_out() -> None:
    results = [row("A -> B, 10 doubles", 100, 400), {"row": "alone", "gateway": {"cpu": 5}}, row("B & C", 30, 60)]
    root = ElementTree.fromstring(chart(results))
    bars = {colour: [] for colour in (GATEWAY, ADAPTER)}  # type: dict[str, list[float]]
    for each in root.iter("{http://www.w3.org/2000/svg}rect"):
        if each.get("height") != "12" or each.get("x") in ("16", "110"):
            continue
        bars[each.attrib["fill"]].append(float(each.attrib["width"]))
    assert bars == {GATEWAY: [LONGEST / 4, LONGEST / 2], ADAPTER: [LONGEST, LONGEST]}
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A to B, 10 doubles" in texts
    assert "B & C" in texts
    assert "alone" not in texts
