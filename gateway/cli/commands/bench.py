"""`gateway bench`: load-test a server over any protocol, and measure its latencies."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer

from gateway.cli import call_inputs, server_options
from gateway.cli.call_inputs import BadArgument
from gateway.cli.command import grouped
from gateway.cli.exit_codes import FAILED, INTERRUPTED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.progress import ProgressStep, progress
from gateway.client import ClientError, ConnectError, Timeout
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.runtime.process import run as run_on_uvloop
from gateway.tools.bench.load import Arrivals, Plan
from gateway.tools.bench.measured import Measured
from gateway.tools.bench.report import Result, as_json, text
from gateway.tools.bench.running import LoadJob, Run, RunFailed, run_of
from gateway.tools.bench.target import Question

SECONDS = 10.0
IN_FLIGHT = {True: 1000, False: 16}
"""The default of `--in-flight` for servers without a limit: in an open loop (True) and in a closed loop (False)."""
TURNS = ((0, 0), (1, 0), (1, 1), (0, 1))
"""The order in which two servers (first number) receive the halves of their load (second number). With this order, slow
changes in the environment affect both servers equally."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The load, the request and the server of `gateway bench`."""

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="ADDRESS MODEL [FILE]",
            help="Same as in `gateway call`. Default inputs: random values that match the signature.",
        ),
    ]
    rate: Annotated[
        float,
        typer.Option(
            metavar="N",
            min=0,
            max=1_000_000,
            help="Send N requests per second, even if the server is slower (open loop). 0: --in-flight clients send "
            "requests, and each waits for its response (closed loop).",
        ),
    ] = 0.0
    arrivals: Annotated[
        Arrivals, typer.Option(metavar="HOW", help="With --rate: random (poisson) or even (constant) intervals.")
    ] = "poisson"
    in_flight: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of requests in flight [default: 1000 with --rate, otherwise 16; 1 for umbridge and "
            "mip, whose servers process one call at a time].",
        ),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0.001, help="Duration of the measurement, in seconds [default: 10, or --requests]."
        ),
    ] = None
    requests: Annotated[int | None, typer.Option(metavar="N", min=1, help="Number of requests to measure.")] = None
    warmup: Annotated[
        float,
        typer.Option(metavar="S", min=0, help="Duration of the warm-up, in seconds. Its requests are not measured."),
    ] = 1.0
    compare: Annotated[
        str,
        typer.Option(metavar="ADDRESS2", help="Alternate between the server and a second server, and print ratios."),
    ] = ""
    processes: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Number of load generators.")] = 1
    connections: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=10_000,
            help="Connections per generator, for gRPC and brpc. Other protocols use one connection per request.",
        ),
    ] = 1
    batch: Annotated[int | None, typer.Option(metavar="N", min=1, help="Number of rows of random inputs.")] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of random inputs and arrivals.")] = 0
    assigned: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE", help="Input, in the format of `gateway call`. Repeatable."),
    ] = field(default_factory=list)
    request: server_options.RequestOptions = field(default_factory=server_options.RequestOptions)
    cast: server_options.Casting = "refuse"
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Timeout for each response, in seconds; 0: no timeout.")
    ] = 10.0
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    flavor: server_options.Flavor = ""
    protocol: Annotated[str, typer.Option(metavar="NAME", help="Protocol, if ADDRESS does not name it.")] = ""
    config: server_options.DeclaringFile = None
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON, with complete histograms and durations in seconds.")
    ] = False


@grouped(BenchOptions)
def bench(options: BenchOptions) -> None:
    """Load-test a model server, and print latencies. Also print the rate and the errors. The command sends requests on
    a schedule, or as fast as the server responds. It measures each latency from the request's scheduled time, so the
    results include server stalls. Exit codes: 0 every request succeeded, 1 requests failed, 2 wrong usage, 3 the server
    is unreachable, 4 no response to the first request in time, 130 interrupted (results so far are printed)."""
    try:
        address, model, file = call_inputs.words(options.words, "", "")
        question = Question(_request(options, model, file), options.cast, options.batch, options.seed)
        addresses = (address, options.compare) if options.compare else (address,)
        jobs = [_job(options, each, question) for each in addresses]
    except (BadArgument, DecodeError, GatewayError, ValueError) as error:
        end(USAGE, error)
    run_on_uvloop(_bench(jobs, options.processes, json_output=options.json_output))


def _request(options: BenchOptions, model: str, file: str) -> Request:
    """Return the request that the run sends repeatedly."""
    request = call_inputs.request(file, model)
    if options.batch is not None and (request.inputs or options.assigned):
        raise BadArgument("--batch is only for random inputs; remove it, or remove FILE and --set")
    if options.in_flight is not None and options.in_flight < options.processes:
        text = f"--in-flight is {options.in_flight}, expected at least one for each of {options.processes} processes"
        raise BadArgument(text)
    request = options.request.completed(request, call_inputs.assigned(options.assigned, Operation.INFER))
    # another process can receive bytes, but not a view of a buffer
    return replace(request, inputs=tuple(replace(each, data=bytes(each.data)) for each in request.inputs))


def _job(options: BenchOptions, address: str, question: Question) -> LoadJob:
    """Return the load-test job for the server at `address`."""
    server = options.server.arguments(address, options.protocol, options.flavor, options.config)
    most = server.checked().protocol.traits.servers.max_in_flight or IN_FLIGHT[bool(options.rate)]
    seconds = SECONDS if options.seconds is None and options.requests is None else options.seconds
    plan = Plan(
        options.rate, options.arrivals, options.in_flight or max(most, options.processes), seconds, options.requests,
        options.warmup, options.seed,
    )  # fmt: skip
    return LoadJob(server, question, plan, options.timeout or None, options.connections)


async def _bench(jobs: list[LoadJob], processes: int, *, json_output: bool) -> None:
    runner = Runner(jobs, processes)
    try:
        results = await runner.results()
    except ConnectError as error:
        end(UNREACHABLE, error)
    except Timeout as error:
        end(TIMED_OUT, error)
    except (ClientError, RunFailed) as error:
        end(FAILED, error)
    except ValueError as error:
        end(USAGE, error)
    if not results:
        end(INTERRUPTED, "interrupted before the first measurement")
    bar = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    print(json.dumps(as_json(results)) if json_output else text(results, bar))
    if runner.is_interrupted:
        raise SystemExit(INTERRUPTED)
    if any(each.measured.failures or not each.measured.requests for each in results):
        raise SystemExit(FAILED)


class Runner:
    """Runs one job, or two jobs in turns, until the jobs are done or the user interrupts them."""

    def __init__(self, jobs: list[LoadJob], processes: int) -> None:
        self.is_interrupted = False
        self._processes = processes
        self._turns = list(enumerate(jobs)) if len(jobs) == 1 else [(at, _half(jobs[at], half)) for at, half in TURNS]
        self._plans = [each.plan for each in jobs]
        self._run: Run | None = None
        """The current run."""

    async def results(self) -> list[Result]:
        """Return the result of each job, or an empty list if the user interrupted before any measurement. Raises the
        same errors as Run."""
        found: dict[int, Result] = {}
        with self._until_interrupted():
            for turn, (at, job) in enumerate(self._turns):
                if self.is_interrupted:
                    break
                measured = await self._measured(job, f"{turn + 1}/{len(self._turns)}")
                if measured is None:
                    break
                if at in found:
                    found[at].measured.merge(measured, at_once=False)
                else:
                    request = job.question.request
                    found[at] = Result(job.server.address, request.model, self._plans[at], measured)
        return list(found.values())

    async def _measured(self, job: LoadJob, turn: str) -> Measured | None:
        run = run_of(job, self._processes)
        try:
            with progress("measuring" if turn == "1/1" else f"turn {turn}") as line:
                line.show("preparing")
                preparing = asyncio.ensure_future(run.prepare())
                self._preparing = preparing
                try:
                    await preparing
                except asyncio.CancelledError:
                    if self.is_interrupted:
                        return None
                    raise
                self._run = run
                began = time.monotonic()
                line.show_each(lambda: _step(run, job.plan, began))
                return await run.run()
        finally:
            self._run = None
            await run.close()

    @contextmanager
    def _until_interrupted(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        self.is_interrupted = True
        if self._run is not None:
            self._run.stop()
        else:
            self._preparing.cancel()


def _half(job: LoadJob, half: int) -> LoadJob:
    """Return the first (`half` is 0) or the second half of a job."""
    plan = job.plan
    seconds = None if plan.seconds is None else plan.seconds / 2
    requests = None if plan.requests is None else (plan.requests + 1 - half) // 2
    return replace(job, plan=replace(plan, seconds=seconds, requests=requests, seed=plan.seed + half))


def _step(run: Run, plan: Plan, began: float) -> ProgressStep:
    """Return the progress of a run. `began` is its start on the clock `time.monotonic`."""
    ended, failed = run.ended()
    of_time = 0.0 if plan.seconds is None else (time.monotonic() - began) / (plan.warmup + plan.seconds)
    of_requests = 0.0 if plan.requests is None else ended / plan.requests
    return ProgressStep(f"{ended} requests, {failed} errors", max(of_time, of_requests))
