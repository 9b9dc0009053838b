"""Objects on the disk: an SQLite file, a history for watches, and selection by labels and fields."""
