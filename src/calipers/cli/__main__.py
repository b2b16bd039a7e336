"""``python -m calipers.cli`` is the same as ``calipers``."""

from calipers.cli import main

if __name__ == "__main__":
    main()
