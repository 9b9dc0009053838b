"""The API over HTTP: discovery, OpenAPI, and the server in `http`."""
