"""The values that all packages use (Message, Request, Response, Tensor, errors, operations), the interface of a
protocol (`protocol`), and the functions that respond to a request (`exchange`, `streaming`). The code opens no sockets.
"""
