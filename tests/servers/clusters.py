"""HyperQueue and SLURM for tests, each a whole cluster on this machine."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.peers.system import PATH

HYPERQUEUE = """
import os, signal, sys
from hyperqueue import LocalCluster
from hyperqueue.cluster import WorkerConfig
cluster = LocalCluster(sys.argv[2])
cores = int(sys.argv[1])
if cores:
    cluster.start_worker(WorkerConfig(cores=cores))
print("ready", flush=True)
for line in sys.stdin:
    cluster.start_worker(WorkerConfig(cores=int(line)))
cluster.stop()
os._exit(0)
"""


@contextmanager
def hyperqueue_cluster(cores: int) -> Iterator[Path]:
    """A HyperQueue server with one worker of so many cores (none for 0). Yields the server's folder.

    It is a process of its own: HyperQueue's threads do not end with the interpreter that they run in.
    """
    with hyperqueue_process(cores) as (_, directory):
        yield directory


@contextmanager
def hyperqueue_process(cores: int, directory: Path | None = None) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """The same with its process, which a test may end or stop. It starts another worker for each line with a number of
    cores that it reads."""
    folder = directory or Path(tempfile.mkdtemp(prefix="hyperqueue-"))
    process = subprocess.Popen(
        [sys.executable, "-c", HYPERQUEUE, str(cores), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert "ready\n" in iter(process.stdout.readline, ""), "the HyperQueue server has not started"
        yield process, folder
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def slurm_cluster(cpus: int = 4, **options: str) -> Iterator[dict[str, str]]:
    """A SLURM controller with one node of so many CPUs. Yields the variables that lead SLURM's commands to it.

    `options` are further lines of its slurm.conf. Call only where `slurm_is_missing` returns None.
    """
    with slurm_processes(cpus, **options) as (environment, _):
        yield environment


def slurm_is_missing() -> str | None:
    """Why SLURM cannot be started here."""
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root"
    lacking = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name, path=PATH) is None]
    if lacking:
        return f"{', '.join(lacking)} missing; on Debian: apt-get install slurm-wlm munge"
    try:
        socket.getaddrinfo(None, 6818, socket.AF_INET, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG)
    except OSError:
        return "slurmd cannot listen in a network namespace that has loopback only"
    return None


@contextmanager
def slurm_processes(
    cpus: int = 4, **options: str
) -> Iterator[tuple[dict[str, str], dict[str, "subprocess.Popen[bytes]"]]]:
    """The same with its daemons by name, which a test may end or stop."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)  # munged wants the way to its socket open
    host = socket.gethostname()
    lines = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.pid",
        "SlurmctldPort": str(free_port()),
        "SlurmdPort": str(free_port()),
        # Signals a whole process group at once. proctrack/linuxproc lists the processes first, and so never ends one
        # that a job script starts just then.
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "ReturnToService": "2",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "JobAcctGatherType": "jobacct_gather/none",
        "MailProg": "/bin/true",
        "SlurmdParameters": "config_overrides",  # CPUs that the machine need not have
        "KillWait": "2",
        # Jobs wait up to 3 s by default, so that many can be looked at together.
        "SchedulerParameters": "batch_sched_delay=0",
        "MessageTimeout": "5",
        **options,
    }
    configuration = folder / "slurm.conf"
    configuration.write_text(
        "".join(f"{name}={value}\n" for name, value in lines.items())
        + f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN\n"
        + "PartitionName=devel Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    )
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    munge = [f"--{name}={folder}/munge/{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    commands = {
        "munged": ["--foreground", "--force", f"--key-file={key}", *munge],
        "slurmctld": ["-D", "-c", "-f", str(configuration)],
        "slurmd": ["-D", "-f", str(configuration)],
    }
    environment = {"SLURM_CONF": str(configuration)}
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            program = shutil.which(name, path=PATH)
            assert program is not None
            with open(folder / f"{name}.log", "wb") as log:
                daemons[name] = subprocess.Popen(
                    [program, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **environment},
                )
            if name == "munged":
                _until(lambda: (folder / "munge/socket").exists(), "munged", folder)
        _until(lambda: _is_idle(environment), "slurmd", folder)
        yield environment, daemons
    finally:
        _end_all_jobs(environment)
        for daemon in reversed(daemons.values()):
            daemon.send_signal(signal.SIGCONT)
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _ask(environment: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=GENEROUS, check=False
    )
    return done.stdout


def _is_idle(environment: Mapping[str, str]) -> bool:
    return _ask(environment, "sinfo", "--noheader", "--format=%T").strip() == "idle"


def _end_all_jobs(environment: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        ids = _ask(environment, "squeue", "--noheader", "--format=%i").split()
        if ids:
            _ask(environment, "scancel", *ids)
            until = time.monotonic() + 10
            while _ask(environment, "squeue", "--noheader", "--format=%i").strip() and time.monotonic() < until:
                time.sleep(0.1)


def _until(holds: Callable[[], bool], name: str, folder: Path) -> None:
    until = time.monotonic() + GENEROUS
    while not holds():
        assert time.monotonic() < until, f"{name} has not started: {(folder / f'{name}.log').read_text()[-2000:]}"
        time.sleep(0.05)
