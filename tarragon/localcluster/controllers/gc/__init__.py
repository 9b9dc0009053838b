"""Deletes pods whose node is gone."""
