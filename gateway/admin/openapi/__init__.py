"""OpenAPI documents for the HTTP paths of each listener and for the admin port, and the page that shows them."""
