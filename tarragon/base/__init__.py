"""What every other package may use: clock, errors, quantities, logs."""
