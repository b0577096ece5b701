"""The values that all packages use (Message, Request, Response, Tensor, errors, operations), the description of a
protocol (`protocol`), and the functions that answer a request (`exchange`, `streaming`). All of this code is pure.
"""
