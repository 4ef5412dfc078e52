"""What the overlay costs: starts, builds and generation, measured by pyperf."""
