"""The command line: wires everything below it together; nobody imports it."""
