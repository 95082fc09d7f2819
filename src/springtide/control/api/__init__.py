"""The HTTP side of the server: who may come in, routes, documents, errors and metrics."""
