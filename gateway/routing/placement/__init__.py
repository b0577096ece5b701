"""Backends whose servers have different models: who has which model, and models that are loaded on demand.

`table` knows who has what, `inventory` and `stocktaking` ask the servers for it, and `backend` sends each request to a
server that has its model. `plan` decides where a model is loaded and what makes room for it, and `loading` does it.
"""
