"""The values that everything uses (Message, Request, Response, Tensor, errors, operations), the description of a wire
form (`protocol`), and the answer to a request (`exchange`, `streaming`). Pure.
"""
