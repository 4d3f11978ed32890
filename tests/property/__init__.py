"""Properties that every spec has, over specs drawn at random from the whole language."""
