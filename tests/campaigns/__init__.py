"""Attacks and bad days, by the thousand and from a seed: what the library must survive.

One module for each kind. ``python -m tests.campaigns`` runs all of them, prints their counts and,
with ``--write``, puts the table of them into ``docs/reliability.md``; ``--share 0.01`` tries one in
a hundred, which the fast tests do.
"""
