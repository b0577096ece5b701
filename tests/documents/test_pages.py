"""Every code block of every page is run or checked, and every link has a target.

Test ids and failures contain `FILE:LINE`.
"""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gateway.cli.options import catalog
from gateway.config import json_schema, loads
from gateway.config.document import compose
from gateway.tools.top.rows import HEAD
from tests.deploy.rendered import render
from tests.documents import examples as runnable
from tests.documents.command_lines import Line, lines_not_run, problems
from tests.documents.examples import Example, Gateways, is_configuration
from tests.documents.pages import ROOT, Block, Link, anchors, blocks, links_of, pages
from tests.documents.parts import completed, problems_but_absent_files
from tests.test_runbook import lines as written_lines

HERE = Path(__file__).parent
ELSEWHERE = {ROOT / "docs/deploy.md"}
"""Pages whose commands tests/deploy/test_deploy_page.py runs."""
EXAMPLES = [each for each in runnable.examples() if each.block.page not in ELSEWHERE]
RUN_ELSEWHERE = {ROOT / "docs/payload-log.md"}
"""Pages whose programs test_scripts.py runs."""
LANGUAGES = {"", "bash", "console", "json", "python", "text", "yaml"}
EXTERNAL = frozenset((HERE / "external_links.txt").read_text("utf-8").split())


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    running = Gateways(tmp_path_factory.mktemp("pages"))
    yield running
    running.close()


def in_languages(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


def by_place(found: list[Block] | list[Link]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("found", found, ids=lambda each: each.place)


# --- what is run ---


OTHER_PROGRAMS = re.compile(r"(?<!\S)(curl|jq|openssl) ")


def example_parameters() -> Iterator[Any]:
    """Return test parameters. The commands of a page depend on each other, so all of them get the markers of each
    command."""
    of_pages: dict[Path, set[str]] = {}
    for example in EXAMPLES:
        if not is_program(example):
            of_pages.setdefault(example.block.page, set()).update(OTHER_PROGRAMS.findall(example.block.text))
    for example in EXAMPLES:
        programs = set() if is_program(example) else of_pages[example.block.page]
        needs = programs or runnable.needs_peer(example)
        marks = [pytest.mark.real(*sorted(programs))] if needs else []
        yield pytest.param(example, id=example.block.place, marks=marks)


def is_program(example: Example) -> bool:
    return example.block.language == "python"


@pytest.mark.parametrize("example", [*example_parameters()])
def test_each_example_prints_what_the_page_shows(gateways: Gateways, example: Example) -> None:
    """The order is the order of the pages, so that the commands and programs of a page use the same gateway."""
    gateways.serve(example)
    if is_program(example):
        assert gateways.run_program(example.block.text, example.printed) == example.printed, example.block.place
        return
    for command in example.commands:
        assert gateways.run(command) == command.printed, f"{example.block.place}: {command.text}"


# --- what is checked ---


def test_every_block_is_in_a_known_language() -> None:
    unknown = [f"{block.place}: {block.language}" for block in blocks() if block.language not in LANGUAGES]
    assert not unknown


@by_place(in_languages("python"))
def test_each_program_is_python(found: Block) -> None:
    ast.parse(found.text, found.place)


def test_every_program_is_run() -> None:
    """A program either shows its output below it, or is a file in a command or configuration of the page, or is an
    excerpt of the gateway's code."""
    run = {each.block for each in runnable.examples()}
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "gateway/tools/conformance").glob("*.py"))]
    left = [
        block.place
        for block in in_languages("python")
        if block not in run
        and block.page not in RUN_ELSEWHERE
        and not (block.file and block.page.read_text("utf-8").count(block.file.removesuffix(".py")) > 1)
        and not any(block.text.strip() in source for source in sources)
    ]
    assert left == []


@by_place(in_languages("json"))
def test_each_json_document_is_json(found: Block) -> None:
    json.loads(found.text)


@by_place([block for block in blocks() if is_configuration(block)])
def test_each_configuration_passes_the_check(found: Block) -> None:
    assert loads(found.text, found.place, catalog(), {"REDIS_PASSWORD": "secret"}).routes


SCHEMA = json_schema(catalog())
CHART = json.loads((ROOT / "deploy/helm/modelglot/values.schema.json").read_text("utf-8"))
FOR_OTHER_PROGRAMS = {"scrape_configs"}
"""Top-level keys of files for other programs."""


PARTS = [block for block in in_languages("yaml") if not (is_configuration(block) or block.changes)]
OF_THE_CHART = [block for block in PARTS if block.page.parent.name == "modelglot" or block.file == "values.yaml"]


@by_place(OF_THE_CHART)
def test_each_part_of_the_chart_s_values_follows_its_schema(found: Block) -> None:
    errors = Draft202012Validator(CHART).iter_errors(compose(found.text, {})[0].plain())
    assert [f"{'.'.join(map(str, error.path))}: {error.message}" for error in errors] == []


@by_place([block for block in PARTS if block not in OF_THE_CHART])
def test_each_part_of_a_configuration_passes_the_check_in_a_whole_one(found: Block) -> None:
    """A part consists of top-level keys, keys of a route, or a list of routes. Its files can be missing."""
    part = json.loads(json.dumps(compose(found.text, {"REDIS_PASSWORD": "secret"})[0].plain()))
    if isinstance(part, dict) and part.keys() <= FOR_OTHER_PROGRAMS:
        return
    text = yaml.safe_dump(completed(part), sort_keys=False)
    errors = [*Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text))]
    assert [f"{'.'.join(map(str, error.path))}: {error.message}" for error in errors] == []
    assert problems_but_absent_files(text, found.place) == []


@pytest.mark.parametrize(
    ("place", "text"), list(runnable.changed_configurations()), ids=lambda each: each.partition("\n")[0]
)
def test_a_configuration_passes_the_check_after_each_change_that_a_page_tells_to_make(place: str, text: str) -> None:
    assert problems_but_absent_files(text, place) == []


def test_a_change_replaces_the_sections_of_its_names_and_adds_others() -> None:
    config = "listeners:\n  - a\nroutes:  # of all\n  - b\n"
    changed = runnable.with_sections(config, "log: {}\nlisteners: [c]\n")
    assert changed == "listeners: [c]\nroutes:  # of all\n  - b\nlog: {}\n"


@by_place(in_languages("bash"))
def test_each_script_is_one(found: Block) -> None:
    checked = subprocess.run(["bash", "-n"], input=found.text, capture_output=True, text=True)
    assert checked.returncode == 0, f"{found.place}: {checked.stderr}"


LOGGED = re.compile(r"^(?:\S+Z )?(?:INFO|WARNING|ERROR) (gateway[\w.]+): (.*)$")
ACCESS = re.compile(r"^\S+Z access [A-Z_]+ ")
"""Matches a line of the access log; tests/observing tests its fields."""
LOAD = re.compile(r"^\S+ at \S+: (open|closed) loop")
"""Matches the output of `gateway bench`, whose figures differ in each run; tests/tools/bench tests its format."""
_COLUMNS = r"\s+".join(re.escape(each) for each in HEAD if each != "rejected")
SCREEN = re.compile(rf"^name\s+{_COLUMNS}$", re.MULTILINE)
"""Matches the screen of `gateway top` with 80 columns; tests/cli tests it."""
DRAWING = re.compile("[─→▶]")
LOG_LINES = [
    (f"{block.place}+{number}", *found.groups())
    for block in in_languages("")
    for number, line in enumerate(block.text.splitlines(), 1)
    if (found := LOGGED.match(line))
]


@cache
def written_patterns() -> tuple[str, ...]:
    """Return a pattern for each log line that the gateway can write."""
    texts = (re.sub(r"%[-+0-9.]*[a-z]", "\0", each) for each in written_lines())
    return tuple(".*".join(map(re.escape, each.split("\0"))) for each in texts)


@pytest.mark.parametrize(("place", "logger", "text"), LOG_LINES, ids=[place for place, _, _ in LOG_LINES])
def test_each_line_of_the_log_is_one_that_the_gateway_writes(place: str, logger: str, text: str) -> None:
    assert (ROOT / logger.replace(".", "/")).with_suffix(".py").exists(), place
    problem = re.match(r"\S+:\d+:\d+: ", text)  # a problem of a configuration, in the format of `gateway check`
    assert problem or any(re.fullmatch(each, text) for each in written_patterns()), place


def test_no_block_is_left_unchecked() -> None:
    """A block without a language is run, or is the output of a block that is run, or contains commands, log lines, or a
    drawing."""
    run = {each.block for each in runnable.examples()}
    outputs = {(each.block.page, each.printed) for each in runnable.examples() if each.block.language == "python"}
    commands = {line.place.partition("+")[0] for line in lines_not_run()}
    logs = {place.partition("+")[0] for place, _, _ in LOG_LINES}
    left = [
        block.place
        for block in in_languages("", "text", "console")
        if block not in run
        and (block.page, block.text) not in outputs
        and block.place not in commands | logs
        and not (block.file or DRAWING.search(block.text) or SCREEN.search(block.text))
        and not (ACCESS.match(block.text) or LOAD.match(block.text))
    ]
    assert left == []


@by_place([block for block in blocks() if block.file == "values.yaml"])
def test_the_chart_renders_the_values_of_a_page(found: Block) -> None:
    config = render(found.text, "models").one_of("ConfigMap", "gateway")["data"]["gateway.yaml"]
    assert problems_but_absent_files(config, found.place) == []


@pytest.mark.parametrize("line", lines_not_run(), ids=lambda line: line.place)
def test_each_command_that_is_not_run_has_the_right_form(line: Line) -> None:
    """These are commands for a cluster or for the reader's own server, and commands that take too long."""
    assert problems(line.words) == [], line.place


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("gateway chek", "there is no command chek"),
        ("gateway keys ad --file f", "there is no command ad"),
        ("gateway check --confg gateway.yaml", "there is no option --confg"),
        ("make everything", "there is no target everything"),
        ("pip install modelglot[all]", "there is no extra all"),
        ("kubectl apply -f deploy/none.yaml", "there is no file deploy/none.yaml"),
        ("helm install m deploy/helm/modelglot --set image.name=x", "the chart has no value image.name=x"),
        ("helm install m deploy/helm/modelglot --set image.tag=x", ""),
        ("gateway keys add --file f --principal p", ""),
        ("make soak MINUTES=3", ""),
    ],
)
def test_a_command_of_the_wrong_form_is_found(command: str, problem: str) -> None:
    assert problems(command.split()) == ([problem] if problem else [])


def test_a_wrong_link_is_found() -> None:
    readme = ROOT / "README.md"
    targets = {
        "docs/none.md": "README.md:1: there is no file docs/none.md",
        "docs/limits.md#none": "README.md:1: docs/limits.md has no heading #none",
        "https://none.example": "README.md:1: https://none.example is not in tests/documents/external_links.txt",
        "docs": "README.md:1: there is no file docs",
        "docs/limits.md#unsupported-features": "",
    }
    assert {target: broken(Link(readme, 1, target)) for target in targets} == targets


# --- links ---


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [problem for link in links_of(page) if (problem := broken(link))] == []


def broken(link: Link) -> str:
    """Return the problem of a link; empty if the link is correct."""
    path, _, anchor = link.target.partition("#")
    if "://" in link.target:
        known = link.target in EXTERNAL
        return "" if known else f"{link.place}: {link.target} is not in tests/documents/external_links.txt"
    target = link.page.parent / path if path else link.page
    if not target.is_file():
        return f"{link.place}: there is no file {path}"
    if anchor and anchor not in anchors(target.resolve()):
        return f"{link.place}: {path or link.page.name} has no heading #{anchor}"
    return ""


def test_every_external_link_that_is_listed_is_used() -> None:
    used = {link.target for page in pages() for link in links_of(page)}
    assert EXTERNAL - used == set()
