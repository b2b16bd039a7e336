"""The size of the library: lines and modules by package, public names, parameters, repetitions.

``python benchmarks/size.py [REVISION]`` measures the working tree, or a revision of the repository.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = 6  # lines that make a repetition
PASSED_OVER = ("#", "import ", "from ")


def sources(revision: str | None) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each module's path within the package, and its text."""
    if revision is None:
        for path in sorted((ROOT / "src/calipers").rglob("*.py")):
            yield path.relative_to(ROOT / "src/calipers").parts, path.read_text()
        return

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for name in git("ls-tree", "-r", "--name-only", revision, "src/calipers").split():
        if name.endswith(".py"):
            yield Path(name).relative_to("src/calipers").parts, git("show", f"{revision}:{name}")


def is_private(package: str, module: str, names: list[str]) -> bool:
    """Whether an import reaches into what is private to another package; the top is everyone's."""
    if not module.startswith("calipers."):
        return False
    first, *rest = module.split(".")[1:]
    if first == package:
        return False
    return any(part.startswith("_") for part in rest) or (
        not first.startswith("_") and any(n.startswith("_") and n[:2] != "__" for n in names)
    )


def main() -> None:
    """Print the numbers."""
    lines, modules, runs = Counter(), Counter(), Counter()
    public = private = parameters = 0
    for place, text in sources(sys.argv[1] if len(sys.argv) > 1 else None):
        package = place[0] if len(place) > 1 else "(top)"
        lines[package] += len(text.splitlines())
        modules[package] += 1
        code = [line.strip() for line in text.splitlines()]
        code = [
            line
            for line in code
            if len(line) > 3 and not line.startswith(("#", "import ", "from "))
        ]
        runs.update(set(zip(*(code[i:] for i in range(RUN)), strict=False)))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                public += len(ast.literal_eval(node.value))
            elif isinstance(node, ast.ImportFrom):
                private += is_private(place[0], node.module or "", [a.name for a in node.names])
            elif isinstance(node, ast.ClassDef) and node.name in ("IntervalRegressor", "Recipe"):
                made = [n for n in node.body if getattr(n, "name", "") == "__init__"]
                parameters = max([parameters, *(len(n.args.kwonlyargs) for n in made)])
    for package, count in lines.most_common():
        print(f"{package:16}{modules[package]:5}{count:8,}")
    print(f"lines {sum(lines.values()):,}, modules {sum(modules.values())}")
    print(f"public names {public}, parameters of the estimator {parameters}")
    print(f"imports of what is private to another package {private}")
    repeated = sum(count > 1 for count in runs.values())
    print(f"runs of {RUN} lines in more than one module {repeated}")


if __name__ == "__main__":
    main()
