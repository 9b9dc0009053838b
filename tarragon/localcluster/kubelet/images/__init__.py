"""From the name of an image to what is run for it: commands, environments and image files."""
