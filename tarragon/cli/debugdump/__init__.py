"""Everything about one job in an archive, with secrets taken out."""
