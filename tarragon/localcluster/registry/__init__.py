"""The API in process: create, read, update, delete and their subresources, with validation and admission."""
