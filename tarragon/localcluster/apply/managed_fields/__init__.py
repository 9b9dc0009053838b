"""Ownership of fields: metadata.managedFields, and the merge of server-side apply, which builds on it."""
