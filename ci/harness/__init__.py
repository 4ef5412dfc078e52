"""What the commands of ci/ do. It needs an interpreter with pip, and nothing else."""
