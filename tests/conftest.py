"""Settings for all tests, and the tables that pytest prints at the end of a run."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from gateway.assembly import issuer_keys
from gateway.core import tasks
from gateway.core.log_limit import LogLimit
from gateway.transports.tcp import connector as tcp_connector
from gateway.transports.timeouts import GRPC_TIMEOUTS, HTTP_TIMEOUTS
from tests.limits import GENEROUS
from tests.real_software import OtherSoftware, missing
from tests.skipping_loop import SkippingLoop
from tests.together import WITH_TRITON

# Time limits of hypothesis fail on a busy machine, where even the first draw can be "too slow".
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many", UNTIMED)
settings.register_profile("few", UNTIMED, max_examples=20)
settings.register_profile("rest", UNTIMED, max_examples=80)  # of the 100 of "many", those that "few" leaves
settings.load_profile("many")

# jsonschema imports this package, which compiles grammars for two seconds in each process. It checks the formats `iri`
# and `iri-reference`, which no schema of this project uses.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# httpx waits for 5 seconds, which is too little on a busy machine. It reuses a connection that was idle for less than 5
# seconds, after which uvicorn closes it.
for function in (httpx.Client.__init__, httpx.AsyncClient.__init__, httpx.get, httpx.post, httpx.request):
    assert function.__kwdefaults__ is not None
    function.__kwdefaults__["timeout"] = GENEROUS
    if "limits" in function.__kwdefaults__:
        function.__kwdefaults__["limits"] = httpx.Limits(keepalive_expiry=1)

# Connections to endpoints have 5 seconds to open, and issuers of tokens 5 seconds to answer, which is too little for a
# process that gets no time for so long.
for endpoint in (HTTP_TIMEOUTS, GRPC_TIMEOUTS):
    object.__setattr__(endpoint, "connect", GENEROUS)
vars(tcp_connector)["CONNECT_SECONDS"] = GENEROUS
vars(issuer_keys)["FETCH_SECONDS"] = GENEROUS

# The tests start hundreds of processes, in environments that `make peers` does not compile.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

HERE = Path(__file__).resolve().parent
# By default, pytest rewrites assertions only in test files. With this call, failing assertions in shared modules also
# show the compared values.
pytest.register_assert_rewrite(*({f"tests.{each.name}" for each in iter_modules([str(HERE)])} - sys.modules.keys()))

LONGEST = (
    "interop/test_derivatives.py",  # and all other files in WITH_TRITON
    "documents/test_pages.py",
    "servers/test_cluster_servers.py",
    "admin/console/test_examples_in_browser.py",
    "deploy/test_image.py",
    "contract/test_any_bytes.py",
    "contract/test_round_trips.py",
    "servers/test_running_servers.py",
    "interop/test_go_clients.py",
    "interop/test_sampler.py",
    "deploy/test_pods.py",
    "core/json/test_json.py",
    "contract/test_matrix.py",
    "packaging/test_distributions.py",
    "test_released.py",
    "interop/test_conformance.py",
    "documents/test_scripts.py",
    "config/test_changed_examples.py",
    "runtime/workers/test_serving.py",
)
"""Files that take at least half a minute, the longest first. Parallel runs start with them, so that no process has to
run a long file alone at the end."""


OF_A_PAGE = "documents/test_pages.py::test_each_example_prints_what_the_page_shows["
"""The start of the id of a test of an example; the page and the line follow."""


class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Runs the tests of a file in one process, and the tests of all files in WITH_TRITON in the same process. Of the
    examples in the documentation, only the examples of one page run in the same process, because they depend on each
    other."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(super()._split_scope(nodeid))
        if file.parent.name == "interop" and file.stem in WITH_TRITON:
            return "triton"
        return nodeid.rpartition(":")[0] if OF_A_PAGE in nodeid else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Return the scheduler for `--dist loadfile`."""
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on a loop whose clock `skip` advances, unless the conftest.py of its folder chooses other loops."""
    return {"asyncio": SkippingLoop}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file whose text shows that it contains no requested test: searching the text is faster than importing
    it."""
    asked = config.option.markexpr
    if collection_path.suffix != ".py" or collection_path.is_relative_to(HERE / "interop") or not asked:
        return None
    text = collection_path.read_text("utf-8")
    if asked == "real" and "mark.real" not in text:
        return True
    if asked.startswith("(long or hypothesis)") and "mark.long" not in text and "hypothesis" not in text:
        return True
    marks = "".join(line for line in text.splitlines() if line.startswith("pytestmark = "))
    return True if any(f"not {each}" in asked and f"mark.{each}" in marks for each in ("real", "long")) else None


def pytest_collection() -> None:
    """Disable garbage collection while pytest collects tests. It would take a quarter of the time, and finds little."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {HERE / name: place for place, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places), "LONGEST names a file that is not there"
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Exclude the modules and thousands of tests from garbage collection: each collection in a test would take a
    second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, exclude what is left of it from garbage collection. A reload of the gateway collects garbage. In
    a process that has run thousands of tests, this would stop the loop for seconds."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


_OTHER_SOFTWARE = pytest.StashKey[OtherSoftware]()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "no":  # not the process that only distributes the tests
        config.stash[_OTHER_SOFTWARE] = OtherSoftware()


def pytest_unconfigure(config: pytest.Config) -> None:
    if hides := config.stash.get(_OTHER_SOFTWARE, None):
        hides.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with item.config.stash[_OTHER_SOFTWARE].as_marked(item):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if lacking := missing(item):
        pytest.skip(f"no {', no '.join(lacking)} on this machine; `make peers` installs some as root on Debian")


@pytest.fixture
def own_log_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test its own limit on log lines about abandoned calls, because other tests can have reached the
    limit."""
    monkeypatch.setattr(tasks, "_lines", LogLimit(tasks.log))


@pytest.fixture
def patient_readyz(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `/readyz` wait for the check of the backends, even on a busy machine."""
    monkeypatch.setattr("gateway.admin.health.ANSWER_SECONDS", 60.0)


Tables = dict[str, list[str]]
"""The lines of each table, by title."""
_TABLES = pytest.StashKey[Tables]()


@pytest.fixture(scope="session")
def show_at_the_end(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Return a function that takes a title and a text, and prints them at the end of the run, even if tests fail."""
    tables = pytestconfig.stash.setdefault(_TABLES, {})
    return lambda title, text: tables.setdefault(title, []).append(text)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """In a pytest-xdist worker, pass the tables to the main process, which prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tables"] = session.config.stash.get(_TABLES, {})
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the tables of a worker that has ended. A worker that crashed has sent none."""
    tables = node.config.stash.setdefault(_TABLES, {})
    for title, lines in getattr(node, "workeroutput", {}).get("tables", {}).items():
        tables.setdefault(title, []).extend(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, lines in config.stash.get(_TABLES, {}).items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
