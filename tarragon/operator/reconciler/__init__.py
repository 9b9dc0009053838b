"""One job at a time: read it, let `plan` decide, and apply the actions; with events, and a watchdog."""
