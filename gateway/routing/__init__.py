"""Chooses the route, the backend and the endpoint for a Request.

    Router (router) ──▶ Backend (backend) ──▶ Endpoint (endpoint) ──▶ Connector of a transport
      conditions          queue                 health
      version_names       sequences
                          targets

`listing`, `extensions` and `readiness` handle requests that concern the entire gateway.
"""
