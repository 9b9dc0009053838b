"""What nodes offer and which pods may go there: capacity, predicates, affinity, topology, storage."""
