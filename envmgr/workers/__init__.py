"""What hosts envs: a process of its own, or the caller itself. A worker never knows a face.

Nothing is imported here, because a worker process imports this package first, before it has set
what must be set before numpy comes in.
"""
