"""Logic that several patches need."""
