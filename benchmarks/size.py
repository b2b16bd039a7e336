"""Measure the size of the library: lines and modules by package, public names, repetitions.

``python benchmarks/size.py [REVISION]`` measures the working tree, or a revision of the repository.
For the working tree it also counts the lines of each feature added since the redesign.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = 6  # lines that count as a repetition
PASSED_OVER = ("#", "import ", "from ")
ALIASES = ("Array", "Scalar", "PyTree")  # of Any: values of libraries that share no type
BEFORE = "cf0c838"  # the last revision before the redesign
STUDY = ("study/", "cli/_study", "datasets/_splits")  # now a separate distribution

# Features added since that revision, as modules, or functions and classes of modules. Lines of a
# feature inside other code (a branch, an argument) are not counted.
FEATURES = {
    "several components, other scales of the target": """
        _estimator/candidates _estimator/trials losses/_mixtures distributions/_transformed
        objectives:candidates,scales,skewness,Density
        heads/_densities:_grouped,_flat,_mixture_quantile,with_components
        heads/_head:mixture_weights,_softmax,with_components,mixture
        onnx/_quantiles:mapped_mean,in_own_unit
        distributions/_mixture:by_network distributions/_mixture_formulas:_by_network
        """,
    "support and bounds of the target": """
        distributions/_support distributions/_learn_support
        distributions/_observed training:check_bounds _estimator/training_rows:_support
        _serialization/model_schema:check_support
        ensemble:admitting,latent_targets,within_bounds distributions/_target_scale
        onnx/_quantiles:observed,clipped,_through_knots metrics/_chance:shared_coverage
        cli/_settings_file:parse_bounds cli/_labelled:refuse_out_of_bounds
        cli/_tune:_checked_bounds
        """,
    "calibration by width": """
        calibration/_width calibration/_deconvolution onnx/_quantiles:log_width
        """,
    "guarantees for groups, subgroups and shifts": """
        _estimator/conformal calibration/_by calibration/_ratio
        calibration/_effective cli/_conformalize regressor:conformalize
        """,
    "streams": """
        calibration/_online calibration/_tracking calibration/_martingale calibration/_input_shift
        calibration/_learned cli/_watch ensemble:learn,_adaptive,_moved regressor:update
        serve/_served:learn,save,alarm serve/_monitor:learned,_seal
        """,
    "more rows than memory": """
        rowblocks _row_sources _estimator/large _estimator/shares bank/_shards
        cli/_fit_blocks
        """,
    "several targets": """
        multitarget cli/_measures:measure_targets,print_targets cli/_labelled:take_targets
        cli/_labelled:load_any
        """,
    "importance, value of more rows": """
        importance report/_drivers more_rows
        plots/_diagnostics:plot_importance,plot_dependence
        """,
    "highest density regions": "distributions/_highest calibration/_level_map:StraightMap",
    "figures of a model in one call": "plots/_diagnostics:plot_intervals,plot_reliability",
    "regressors of other libraries, skpro": """
        _estimator/wrapped skpro bank/_upgraded:ColumnPoints _estimator/upgrading:_add_points
        _serialization/models:_regressor
        """,
    "high-cardinality categories, numeric codes, words": """
        preprocessing/_words onnx/_network_graph:has_words
        preprocessing/_targets preprocessing/_numeric_codes preprocessing/_categories
        preprocessing/_target_inputs preprocessing/_encoder:knows_targets
        preprocessing/_encoders:distinct_levels,level_codes,numbers,_onnx_levels
        _estimator/training_rows:encoded_by_fold
        """,
    "gross errors among targets": """
        _outliers _estimator/training_rows:mark_outliers,set_outliers_aside
        _estimator/fitting:_without
        cli/_columns:note_outliers,without_repeats,note_leaks
        """,
    "piecewise-linear encoding": """
        networks/_modules:PiecewiseLinear
        networks/_factories:knots,with_knots networks/_mlp:with_segments,alternative
        """,
    "tree predictions as an input": """
        preprocessing/_forest preprocessing/_trees _estimator/tree_bags _estimator/tree_inputs
        onnx/_network_graph:with_trees
        _serialization/models:_of_trees,_trees
        """,
    "untrusted model folders": """
        _schema _serialization/model_schema preprocessing/_document
        _serialization/banks:check_bank,_check_shapes,_check_outputs,_output_bound
        _serialization/models:check_model,_check_fit cli/_inspect:_check cli/_measures:is_measured
        """,
    "limits on requests and files": """
        serve/_connections serve/_guard:Budget,Account serve/_json serve/_bodies:read_body
        tables/_source:TableLimits tables/_ipc
        """,
    "fast predictions, programs kept on disk": """
        bank/_dense bank/_cache:_description,_sources,_Kept,_read_own,_check_owner,training_devices
        bank/_program:_name,code,description distributions/_grid calibration/_rules
        _estimator/inputs:_ready bank/_run:compact bank/_observer:turn
        """,
    "out-of-fold predictions, rows in time order": """
        crossfit/_out_of_fold:OutOfFold crossfit/_folds:leave_rows_out
        regressor:out_of_fold_ cli/_holdout
        """,
    "workbooks": "tables/_excel",
}


def sources(revision: str | None, *endings: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path within the package, and text, of each file with one of these endings."""
    if revision is None:
        for path in sorted((ROOT / "src/calipers").rglob("*.*")):
            if path.name.endswith(endings):
                yield path.relative_to(ROOT / "src/calipers").parts, path.read_text()
        return

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for name in git("ls-tree", "-r", "--name-only", revision, "src/calipers").split():
        if name.endswith(endings):
            yield Path(name).relative_to("src/calipers").parts, git("show", f"{revision}:{name}")


def module_name(place: tuple[str, ...]) -> str:
    """Dotted name of a module, given its path within the package."""
    return ".".join(("calipers", *place)).removesuffix(".py").removesuffix(".__init__")


def foreign_names(package: str, tree: ast.AST, modules: set[str]) -> Iterator[tuple[str, str]]:
    """Modules of other packages whose names a module uses, each with the name."""
    inside = ("calipers", f"calipers.{package}")
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    names = [(n.module or "", a.name, a.asname or a.name) for n in found for a in n.names]
    whole = {own: f"{place}.{name}" for place, name, own in names if f"{place}.{name}" in modules}
    used = [(place, name) for place, name, _ in names if f"{place}.{name}" not in modules]
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    used += [(whole[n.value.id], n.attr) for n in attributes if getattr(n.value, "id", "") in whole]
    for place, name in used:
        if place in modules and place not in inside and not place.startswith(f"{inside[1]}."):
            yield place, name


def is_private(module: str, name: str) -> bool:
    """Whether a name of another package is private; those of private modules at the top are not."""
    first, *rest = module.split(".")[1:]
    if first.startswith("_"):
        return bool(rest)
    return any(part.startswith("_") and part[:2] != "__" for part in (*rest, name))


def measured_features() -> dict[str, int]:
    """Number of lines of each feature in the working tree."""
    found = dict.fromkeys(FEATURES, 0)
    for feature, places in FEATURES.items():
        for place in places.split():
            module, _, names = place.partition(":")
            path = ROOT / "src/calipers" / f"{module}.py"
            text = path.read_text() if path.exists() else ""
            if not names:
                found[feature] += len(text.splitlines())
                continue
            spans = {
                (node.name, node.lineno): node.end_lineno - node.lineno + 1
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
            }
            for name in names.split(","):
                sizes = [size for (defined, _), size in spans.items() if defined == name]
                found[feature] += sum(sizes)
                if not sizes:
                    print(f"{module} does not define {name}: update FEATURES")
    return found


def kinds_of_lines(text: str) -> Counter[str]:
    """Number of lines of a module by what they are."""
    kinds = ["code"] * len(text.splitlines())
    for number, line in enumerate(map(str.strip, text.splitlines())):
        if not line or line.startswith("#"):
            kinds[number] = "comment" if line else "blank"
    for node in ast.walk(ast.parse(text)):
        first = node.body[0] if isinstance(getattr(node, "body", None), list) else None
        spans = {}
        if isinstance(node, ast.Import | ast.ImportFrom):
            spans["import"] = node
        elif isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            spans["docstring"] = first
        for kind, span in spans.items():
            kinds[span.lineno - 1 : span.end_lineno] = [kind] * (span.end_lineno - span.lineno + 1)
    return Counter(kinds)


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Annotations of arguments, results and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def print_features(total: int) -> None:
    """Print the lines of each feature, and of the rest of the library then and now."""
    found = measured_features()
    print(f"\nsince {BEFORE}:")
    for feature, count in sorted(found.items(), key=lambda pair: -pair[1]):
        print(f"  {feature:50}{count:8,}")
    older = {"/".join(place): len(text.splitlines()) for place, text in sources(BEFORE, ".py")}
    without = sum(n for name, n in older.items() if not name.startswith(STUDY))
    print(f"all of these {sum(found.values()):,}; the rest {total - sum(found.values()):,} lines,")
    print(f"compared with {without:,} at {BEFORE}, without the study")


def main() -> None:
    """Print all measurements."""
    lines, modules, runs, kinds = Counter(), Counter(), Counter(), Counter()
    promised, shared, private = set(), set(), 0
    public = parameters = annotated = untyped = aliased = 0
    revision = sys.argv[1] if len(sys.argv) > 1 else None
    files = list(sources(revision, ".py"))
    modules_by_name = {module_name(place) for place, _ in files}
    for place, text in files:
        package = place[0] if len(place) > 1 else "(top)"
        lines[package] += len(text.splitlines())
        modules[package] += 1
        kinds.update(kinds_of_lines(text))
        code = [line.strip() for line in text.splitlines()]
        code = [line for line in code if len(line) > 3 and not line.startswith(PASSED_OVER)]
        runs.update(set(zip(*(code[i:] for i in range(RUN)), strict=False)))
        tree = ast.parse(text)
        kept = list(annotations(tree))
        annotated += len(kept)
        untyped += sum(getattr(annotation, "id", "") == "Any" for annotation in kept)
        aliased += sum(getattr(annotation, "id", "") in ALIASES for annotation in kept)
        own = place[0].removesuffix(".py")
        for module, name in set(foreign_names(own, tree, modules_by_name)):
            shared.add((module, name))
            private += is_private(module, name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names = ast.literal_eval(node.value)
                public += len(names)
                promised.update(names)
            elif isinstance(node, ast.ClassDef) and node.name in ("IntervalRegressor", "Recipe"):
                made = [n for n in node.body if getattr(n, "name", "") == "__init__"]
                names = [getattr(getattr(n, "target", None), "id", "_") for n in node.body]
                fields = sum(not name.endswith("_") for name in names)  # of a dataclass
                parameters = max([parameters, fields, *(len(n.args.kwonlyargs) for n in made)])
    unpromised = sum(name not in promised and name[:2] != "__" for _, name in shared)
    for package, count in lines.most_common():
        print(f"{package:16}{modules[package]:5}{count:8,}")
    print(f"lines {sum(lines.values()):,}, modules {sum(modules.values())}")
    print(", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common()))
    print(f"public names {public}, parameters of the estimator {parameters}")
    print(f"names used across packages, in no __all__ {unpromised}")
    print(f"uses of private names of another package {private}")
    print(f"annotations {annotated:,}, of them a bare Any {untyped}, another name for it {aliased}")
    pages = sum(len(text.splitlines()) for _, text in sources(revision, ".js", ".css", ".html"))
    print(f"lines of pages (JavaScript, CSS, HTML) {pages:,}")
    repeated = sum(count > 1 for count in runs.values())
    print(f"runs of {RUN} lines in more than one module {repeated}")
    if revision is None:
        print_features(sum(lines.values()))


if __name__ == "__main__":
    main()
