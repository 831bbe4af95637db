"""What breaks, broken for real: exits, signals, hangs, dead parents, exhausted memory."""
