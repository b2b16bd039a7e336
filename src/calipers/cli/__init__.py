"""The command line: ``calipers`` and its commands.

Each module defines one command. Heavy libraries are imported inside the commands that need them,
so that ``calipers --help`` responds at once. Other distributions add commands through entry points
(see ``calipers.cli._plugins``); ``OnCluster`` and ``cluster_at`` give them an option ``--cluster``.

Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 3 for an unusable table, 4 for an
unusable model folder, 130 for an interrupt.
"""

from calipers.cli._conformalize import conformalize_command
from calipers.cli._datasets import datasets_command
from calipers.cli._demo import demo_command
from calipers.cli._evaluate import evaluate_command
from calipers.cli._export import export_command
from calipers.cli._fit import fit_command
from calipers.cli._help import add_command
from calipers.cli._inspect import inspect_command
from calipers.cli._options import OnCluster, cluster_at
from calipers.cli._predict import predict_command
from calipers.cli._report import report_command
from calipers.cli._root import app
from calipers.cli._serve import serve_command
from calipers.cli._tune import tune_command
from calipers.cli._watch import watch_command

add_command(app, "fit", fit_command)
add_command(app, "predict", predict_command)
add_command(app, "evaluate", evaluate_command)
add_command(app, "conformalize", conformalize_command)
add_command(app, "report", report_command)
add_command(app, "inspect", inspect_command)
add_command(app, "tune", tune_command)
add_command(app, "datasets", datasets_command)
add_command(app, "demo", demo_command)
add_command(app, "serve", serve_command)
add_command(app, "watch", watch_command)
add_command(app, "export", export_command)

__all__ = ["OnCluster", "app", "cluster_at", "main"]


def main() -> None:
    """Run the command line; the entry point of the ``calipers`` script."""
    app(prog_name="calipers")
