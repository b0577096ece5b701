"""Explains the route of a request, the reasons why other routes do not match, and each conversion of the request.

This package makes no decisions. It uses the Router, route conditions, Bridges and codecs of the running gateway.
Explanations are values. `text` renders them for people, and orjson encodes them as JSON.
"""
