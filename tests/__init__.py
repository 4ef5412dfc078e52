"""The tests; a package, so that a scenario script's imports from here find no other ``tests``."""
