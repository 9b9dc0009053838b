"""What is done to jobs that exist: select, list, watch, edit, scale, suspend, delete, describe."""
