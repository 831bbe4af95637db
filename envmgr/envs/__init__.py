"""The env side: what an env must offer, and how any env is brought to one form.

``adapt`` looks at what an env does and gives an ``Adapted``, the only thing a worker calls. There
is one adapter a file (``classic``, ``parallel``, ``dm``); ``base`` documents what an env offers;
``toy`` has small envs for demos, benchmarks and tests. Neither gym nor gymnasium is imported here,
save by ``toy``, which nothing imports but the user.
"""
