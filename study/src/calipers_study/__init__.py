"""The paper's experiments: its trainings, its tables and its figures.

``calipers study`` is the way in, see ``calipers_study.cli``. From Python, ``run.run`` trains,
``tables.write_tables`` and ``figures.write_figures`` show what came of it. This module imports
nothing, so that ``calipers study --help`` answers at once.
"""
