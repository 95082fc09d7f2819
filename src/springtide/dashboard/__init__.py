"""The platform in the browser: pages made on the server of the documents of the HTTP API."""
