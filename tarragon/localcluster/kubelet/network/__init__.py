"""Pod addresses and ports on one machine: port claims, service links, and addresses that are translated."""
