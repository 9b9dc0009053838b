"""Basics that every other package may use: clock, errors, quantities, resource amounts, logging, escaping."""
