"""Explanations: which route a request takes and why the others do not, and what a request becomes on its way.

Nothing here decides anything: the Router, the conditions of routes, the bridges and the codecs are those of the running
gateway. Explanations are values that `text` writes for people and orjson as JSON.
"""
