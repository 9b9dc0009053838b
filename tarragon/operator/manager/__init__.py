"""The operator as a process: settings, leader election, start and stop, health."""
