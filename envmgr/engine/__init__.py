"""The engine: the one owner of every env's state. Faces stand above it, workers below."""
