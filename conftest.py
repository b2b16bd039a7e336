"""What pytest leaves alone: doctests of modules whose extra is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/calipers/torch.py"]
