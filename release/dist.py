"""Build the distributions and try them as a stranger would: in a bare environment, elsewhere.

    python release/dist.py          # wheels and source archives into dist/, all checks
    python release/dist.py --write  # and write the sizes of an installation into the README

Needs ``pip install --group release``. The environment holds what ``pip install calipers`` brings
and nothing else, and lies outside of the source tree, so that a file which is missing from the
wheel is missing here too.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SIZES = re.compile(r"(<!-- sizes -->)(.*?)(<!-- /sizes -->)", re.DOTALL)


def run(*command, **options):
    """Run a command, shown before it runs; a failure ends everything."""
    sys.stdout.write(f"$ {' '.join(str(part) for part in command)}\n")
    sys.stdout.flush()
    subprocess.run([str(part) for part in command], check=True, **options)


def build():
    """Wheels, each built from its source archive, and checks of what is in them."""
    shutil.rmtree(DIST, ignore_errors=True)
    for project in (ROOT, ROOT / "study"):
        run(sys.executable, "-m", "build", "--outdir", DIST, project, stdout=subprocess.DEVNULL)
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    run(sys.executable, "-m", "check_wheel_contents", *DIST.glob("*.whl"))


def megabytes(folder):
    """Size of the files in a folder, links not followed, in units of 10^6 bytes."""
    files = (path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def try_out(folder):
    """Install the wheels into a folder and use them there; return sizes in MB by name."""
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", environment)
    python, empty = environment / "bin" / "python", megabytes(environment)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    clean |= {"CALIPERS_CACHE": str(folder / "cache")}
    wheels = {path.name.split("-")[0]: path for path in DIST.glob("*.whl")}
    sizes = {"wheel": wheels["calipers"].stat().st_size / 1e6}

    def install(*what):
        run(python, "-m", "pip", "install", "--quiet", *what, env=clean)
        return megabytes(environment) - empty

    def use(*command):
        run(environment / "bin" / command[0], *command[1:], env=clean, cwd=folder)

    sizes["plain"] = install(wheels["calipers"])
    shutil.copytree(ROOT / "tests" / "data" / "model-0.1", folder / "model-0.1")
    shutil.copy(ROOT / "release" / "smoke.py", folder)
    use("python", "smoke.py", "model-0.1")
    use("calipers", "demo", "--out", "demo")
    sizes["plots and serve"] = install(f"{wheels['calipers']}[plots,serve]")
    install(wheels["calipers_study"])
    use("calipers", "study", "--help")
    return sizes


def sentence(sizes):
    """What the README says of the sizes."""
    return (
        f"the wheel is {sizes['wheel']:.1f} MB; installed with everything that it needs it takes "
        f"{sizes['plain']:.0f} MB, with `[plots,serve]` {sizes['plots and serve']:.0f} MB"
    )


def main():
    """Build, check, try, and tell the sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the sizes into the README")
    options = parser.parse_args()
    build()
    with tempfile.TemporaryDirectory(prefix="calipers-dist-") as folder:
        sizes = try_out(Path(folder))
    sys.stdout.write(f"{sentence(sizes)}\n")
    if options.write:
        readme = ROOT / "README.md"
        text, found = SIZES.subn(rf"\g<1>{sentence(sizes)}\g<3>", readme.read_text("utf-8"))
        if not found:
            raise SystemExit("README.md has no <!-- sizes --> to write them to")
        readme.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
