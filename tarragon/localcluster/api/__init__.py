"""What can be asked of the API and what it answers: requests, errors, identities, JSONPath."""
