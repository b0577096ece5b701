"""Supports backends whose servers have different models: records the models of each server, and loads models on demand.

`table` records which server has which model, `inventory` queries the servers for their models, and `slots` chooses an
endpoint that has the model for each request. `plan` decides where to load a model and which models to unload to make
room, and `loading` carries out the plan.
"""
