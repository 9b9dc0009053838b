"""What is free: the capacity of nodes, what is allocated on them, and indexes over both."""
