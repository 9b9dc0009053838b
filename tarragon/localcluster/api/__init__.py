"""The vocabulary of the API: requests and responses, errors, users, URL paths, JSONPath."""
