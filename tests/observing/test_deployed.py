"""The dashboard, the alerts and the documentation use only metrics and labels that a gateway exposes."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.observing import recording
from tests.observing.document import FAMILIES, PAGE, documented
from tests.observing.promql import OF_TARGETS, Names, names
from tests.observing.scraped import CONFIG, ROUNDING, ROUTE, TENTH, Page, fail, infer, running, scrape
from tests.policies.states import mirrors

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/gateway.json").read_text())
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
VARIABLES = {"$__rate_interval"} | {f"${each['name']}" for each in DASHBOARD["templating"]["list"]}


def queries() -> Iterator[tuple[str, str]]:
    """Each expression of the dashboard and the alerts, with what it is for."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, _, label = re.fullmatch(r"label_values\((\w+)(, )(\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            yield f"variable {variable['name']}", f"sum by ({label}) ({metric})"


async def busy_page() -> Page:
    """The page of a gateway in which everything that is counted has happened: a retry, an error, a loss, a mirrored
    request whose answers differ."""
    policy = "safe: true, policies: [{retry: {attempts: 2, statuses: [INTERNAL]}}]"
    text = CONFIG.replace('["127.0.0.1:PORT"]}', f'["127.0.0.1:PORT"], max_in_flight: 1, {policy}}}')
    mirror = "policies: [{mirror: {backend: lab, sample: 1, model: fail}}]"
    text = text.replace(ROUTE, f"{ROUNDING}\n    {mirror}")
    async with running(text) as gateway, httpx.AsyncClient() as client:
        await infer(client, gateway, inputs=TENTH)
        await asyncio.gather(*(each.ended() for each in mirrors(gateway)))
        await fail(client, gateway)
        return await scrape(gateway)


def missing(used: Names, exposed: dict[str, set[str]]) -> set[str]:
    """What an expression names and no gateway exposes."""
    absent = {name for name, _ in used.selected if name not in exposed}
    for name, labels in used.selected:
        absent |= {f"{name}{{{label}}}" for label in labels - exposed.get(name, set()) - OF_TARGETS}
    grouping = set().union(*(exposed.get(name, set()) for name, _ in used.selected), OF_TARGETS)
    return absent | {f"by ({label})" for label in used.grouped - grouping}


async def test_every_metric_and_label_of_the_dashboard_and_alerts_is_exposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "next_is_timed", lambda: True)
    exposed: dict[str, set[str]] = {}
    for sample in (await busy_page()).samples:
        exposed.setdefault(sample.name, set()).update(sample.labels)
    found = {what: missing(names(expression), exposed) for what, expression in queries()}
    assert len(found) > 40
    assert {what: each for what, each in found.items() if each} == {}


def test_a_wrong_name_would_be_seen() -> None:
    exposed = {"gateway_requests_total": {"code"}}
    assert missing(names('sum by (code) (rate(gateway_requests_total{code="OK"}[5m])) > 0'), exposed) == set()
    wrong = names('sum by (status) (rate(gateway_requests_total{cod=~"a|b"}[5m])) / gateway_queue')
    assert missing(wrong, exposed) == {"gateway_queue", "gateway_requests_total{cod}", "by (status)"}
    with pytest.raises(ValueError, match="rat is no function"):
        names("rat(gateway_requests_total[5m])")


def test_every_variable_of_the_dashboard_exists() -> None:
    used = {each for _, expression in queries() for each in re.findall(r"\$\w+", expression)}
    assert used <= VARIABLES


async def test_the_page_has_every_metric_and_no_other() -> None:
    page = await busy_page()
    own = {name for name in page.families if not name.startswith(("process_", "python_"))}
    assert own == {family.name.removesuffix("_total") for family in FAMILIES}
    for family in FAMILIES:
        found = page.families[family.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (family.kind, family.text)
        for sample in found.samples:
            assert set(sample.labels) - {"le"} == set(family.labels)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_the_runbook_explains_every_alert(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in RUNBOOK


def test_the_runbook_explains_no_alert_that_is_gone() -> None:
    section = RUNBOOK.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### (\w+)$", section, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}


def test_the_documentation_has_the_table_of_these_metrics() -> None:
    """`make metrics` writes it."""
    page = PAGE.read_text()
    assert documented(page) == page
