"""What hostile clients and servers send to a gateway: its memory, its loop, its connections, whose replies come back.

Every case runs against a gateway in a process of its own (`observed.py`). All are marked `attack`, and `make attack`
runs them.
"""
