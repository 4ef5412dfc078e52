"""What the logic of several patches shares."""
