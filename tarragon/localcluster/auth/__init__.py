"""Who asks, and what they may do: authentication, roles, and the reviews that tell of both."""
