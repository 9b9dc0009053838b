"""Flags, arguments, environment variables and the configuration file, and what they mean together."""
