"""Drive the real `openai.OpenAI`, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": {"type", "status", "text"}}` where the client
raised. Steps:

    {"op": "embed", "model": M, "input": .., **options}     {"data": [embedding, ..], "usage": {..} or null}
    {"op": "complete", "model": M, "prompt": ..}            the text of the completion
    {"op": "stream", "model": M, "prompt": ..}              the texts of its chunks
    {"op": "models"}                                        the ids
    {"op": "model", "model": M}                             its id
"""

import openai


def run(client, op, **step):
    match op:
        case "embed":
            reply = client.embeddings.create(**step)
            usage = reply.usage.model_dump() if reply.usage else None
            return {"data": [each.embedding for each in reply.data], "usage": usage}
        case "complete":
            return client.completions.create(**step).choices[0].text
        case "stream":
            return [each.choices[0].text for each in client.completions.create(**step, stream=True)]
        case "models":
            return [each.id for each in client.models.list()]
        case "model":
            return client.models.retrieve(step["model"]).id


def tried(client, step):
    try:
        return run(client, **step)
    except openai.APIStatusError as error:
        return {"error": {"type": type(error).__name__, "status": error.status_code, "text": error.message}}


def main(url, steps):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    return [tried(client, step) for step in steps]
