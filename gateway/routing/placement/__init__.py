"""Supports backends whose servers have different models: records the models of each server, and loads models on demand.

`table` records which server has which model, `inventory` queries the servers for their models, and `slots` gives each
request an endpoint that has its model. `plan` decides where to load a model and which models to unload for it, and
`loading` carries out the plan.
"""
