"""The operator process: settings, leader election, start and shutdown, health."""
