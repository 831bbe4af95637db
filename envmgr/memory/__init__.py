"""Memory that processes share, and how values of a space lie in it. Nothing here knows of envs or workers."""
