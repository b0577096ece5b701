"""Explanations of requests: the route of a request, the reasons why other routes do not match, and each conversion of
the request.

This package makes no decisions. It uses the Router, the conditions of routes, the bridges and the codecs of the running
gateway. Explanations are values that `text` writes for people and orjson as JSON.
"""
