"""Pod addresses and ports on one machine: port claims, service links, and translated service addresses."""
