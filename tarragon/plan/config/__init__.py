"""Configuration that other programs read: the queue file, and the configuration that the operator publishes."""
