"""Who owns which field of an object: metadata.managedFields, and server-side apply, which rests on it."""
