"""Backends whose servers have different models: the models of each server, and on-demand loading.

`table` knows who has what, `inventory` and `inventory_refresh` ask the servers for it, and `backend` sends each request
to a server that has its model. `plan` decides where a model is loaded and what makes room for it, and `loading` does
it.
"""
