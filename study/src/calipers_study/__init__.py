"""The paper's experiments: its trainings, its tables and its figures.

The entry point is ``calipers study``, see ``calipers_study.cli``. From Python, ``run.run`` trains,
and ``tables.write_tables`` and ``figures.write_figures`` show the results. This module imports
nothing, so that ``calipers study --help`` is fast.
"""
