"""Node capacity and the rules for which pods may run on which nodes: predicates, affinity, topology, storage."""
