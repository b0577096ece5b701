"""Two applications of Ray Serve, at `/double` and `/text`: `python ray_applications.py PORT`."""

import signal
import sys
import tempfile

import ray
from ray import serve


def doubled(numbers):
    if isinstance(numbers, list):
        return [doubled(each) for each in numbers]
    if isinstance(numbers, dict):
        return {name: doubled(each) for name, each in numbers.items()}
    if numbers < 0:
        raise ValueError("boom")
    return 2 * numbers


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Double:
    async def __call__(self, request):
        return doubled(await request.json())


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Text:
    async def __call__(self, request):
        return f"hello {await request.json()}"


with tempfile.TemporaryDirectory() as folder:
    ray.init(
        _node_ip_address="127.0.0.1",
        include_dashboard=False,
        num_cpus=1,
        object_store_memory=80 * 2**20,
        _temp_dir=folder,
        logging_level="WARNING",
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Double.bind(), name="double", route_prefix="/double")
    serve.run(Text.bind(), name="text", route_prefix="/text")
    signal.sigwait({signal.SIGTERM})
    serve.shutdown()
    ray.shutdown()
