"""Looking at one env before a run does: facts are collected in a worker, and judged by pure functions.

``target`` finds the env, ``probe`` runs in the worker and writes down ``facts``, ``collect`` watches it from
outside, ``findings`` says what the facts mean, ``report`` holds what was found. ``layouts`` and ``cost``
answer whether processes pay.
"""
