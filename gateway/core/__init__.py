"""The values that all packages use (Message, Request, Response, Tensor, errors, operations), the description of a
protocol (`protocol`), and the functions that respond to a request (`exchange`, `streaming`). The code is pure: it opens
no sockets.
"""
