"""OpenAPI documents: of the HTTP paths that each listener serves, and of the admin port itself; and the page that shows
them."""
