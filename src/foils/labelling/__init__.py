"""Which negatives to look at, and what those that were looked at say of each source: `foils label`."""
