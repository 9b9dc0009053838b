"""Pure decisions: what a manifest means, what a job should have, what has become of it, what to do next."""
