"""Other operators in the same cluster: whether one of them already serves these jobs."""
