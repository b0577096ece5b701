"""Drive boto3's client of `sagemaker-runtime`, in the peer's own environment.

Takes `url, steps`, and gives a list with one result per step, `{"error": {"code", "status", "text"}}` where the client
raised. A step has the arguments of `invoke_endpoint`, with `Body` as base64; its result is `{"body": base64, "type":
content type}`.
"""

import base64

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def invoke(client, step):
    try:
        reply = client.invoke_endpoint(**{**step, "Body": base64.b64decode(step["Body"])})
    except ClientError as error:
        told = error.response
        status = told["ResponseMetadata"]["HTTPStatusCode"]
        return {"error": {"code": told["Error"]["Code"], "status": status, "text": told["Error"]["Message"]}}
    return {"body": base64.b64encode(reply["Body"].read()).decode(), "type": reply["ContentType"]}


def main(url, steps):
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="unused",
        aws_secret_access_key="unused",
        config=Config(retries={"total_max_attempts": 1}),
    )
    return [invoke(client, step) for step in steps]
