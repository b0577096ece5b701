"""Drive the real `kserve.InferenceRESTClient` over V1, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": text}` where the client raised. Steps:

    {"op": "infer", "model": M, "body": {"instances": ..}}      the reply
    {"op": "explain", ..}                                       the same
    {"op": "ready", "model": M}                                 true or false
    {"op": "live"}                                              true or false
"""

import asyncio

from kserve import InferenceRESTClient, RESTConfig


async def run(client, url, step):
    match step["op"]:
        case "infer":
            return await client.infer(url, step["body"], model_name=step["model"])
        case "explain":
            return await client.explain(url, step["model"], step["body"])
        case "ready":
            return await client.is_model_ready(url, step["model"])
        case "live":
            return await client.is_server_live(url)


async def run_all(url, steps):
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    results = []
    for step in steps:
        try:
            results.append(await run(client, url, step))
        except Exception as error:
            results.append({"error": str(error)})
    await client.close()
    return results


def main(url, steps):
    return asyncio.run(run_all(url, steps))
