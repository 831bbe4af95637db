"""One suite over every manager and start method: what DESIGN promises in words, as tests."""
