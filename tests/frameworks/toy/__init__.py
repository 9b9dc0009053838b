"""A framework for the tests: the ToyJob of example.org, with a leader, helpers, and hubs that both talk to."""
