"""What is said about a job that has ended: its numbers, or why it failed and what to do."""
