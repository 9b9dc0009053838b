"""Following a job: what is seen of it, how that is drawn, and the logs of its replicas as they come."""
