"""Text for people: words, colours, wrapping, what a terminal can show."""
