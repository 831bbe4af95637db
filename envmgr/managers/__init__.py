"""The faces that take and give dicts by env_id, and the array face of the same managers.

A manager checks what it is given and turns results into timesteps; it never talks to a process and
holds no state of an env. Import classes from ``envmgr`` or from their own modules.
"""
