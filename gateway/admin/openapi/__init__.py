"""OpenAPI documents for each HTTP listener and for the admin port, and the page that shows them."""
