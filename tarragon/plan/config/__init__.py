"""Configuration that others read: the file of queues, and what the operator publishes about its own."""
