"""The admission of gangs: build a snapshot, run the policy on it, validate its decisions, and write them."""
