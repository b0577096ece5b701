"""Explanations: the route of a request, the reasons why other routes do not match, and each conversion of the request.

Nothing here decides anything: the Router, the conditions of routes, the bridges and the codecs are those of the running
gateway. Explanations are values that `text` writes for people and orjson as JSON.
"""
