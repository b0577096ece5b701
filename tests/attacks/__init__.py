"""Attacks of hostile clients and servers on a gateway. The tests check its memory, its event loop, its connections, and
that every reply reaches the right client.

Every case runs against a gateway in its own process (`observed.py`). All tests have the marker `attack`, and `make
attack` runs them.
"""
