"""`tarragon top`: a page of a terminal that shows jobs, replicas and nodes as they are now."""
