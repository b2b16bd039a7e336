"""Variants that differ from a published training in one respect, and the datasets they run on.

Some may explain why a number differs from the paper's (``EXPERIMENTS``); others are what the paper
proposes as future work (``FUTURE``).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """How a training differs from the published one of a method."""

    label: str  #: Its name in tables.
    method: str = "qd+"  #: A key of ``METHODS``.
    loss: str = ""  #: Another loss with the same settings.
    #: How members are combined into one prediction; as in the method by default.
    aggregations: tuple[str, ...] = ()
    seed: int = 0  #: Seed of shuffles and networks.
    #: "glorot" as published, or "kaiming", the default of PyTorch's layers.
    initial: str = "glorot"
    full_batches: bool = False  #: Leave out the rows of a last, smaller batch.
    by_epoch: bool = False  #: Let the learning rate fall once per epoch, not in every step.
    scaled_by_all: bool = False  #: Standardise by all rows, not by the training rows.
    constant_inputs: bool = False  #: Let constant inputs be 1, not 0, after standardisation.
    tf32: bool = False  #: Round matrix products as an accelerator does by default.
    #: Keep the weights of the epoch with the best test error, to see how much that would flatter.
    best_epoch: bool = False
    draws: int = 1  #: How often all trials are drawn, with seeds from ``seed`` on.
    #: Train without the bank, by the loop of ``calipers_study.numpy_training`` ("numpy", for QD) or
    #: that of ``calipers_study.jax_training`` ("jax", for points).
    plain: str = ""
    #: "one", or training in two steps, first for points and then for intervals: all weights
    #: ("further") or the last layer alone ("frozen").
    steps: str = "one"


_SMALL = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
_DRAWN_AGAIN = "other shuffles and seeds"
_FULL = "no partial batch"
_FEW_LEFT = ("concrete", "kin8nm", "power", "wine")  # the last batch has up to 3% of the rows

EXPERIMENTS: dict[str, tuple[Variant, tuple[str, ...]]] = {
    f"{variant.method}: {variant.label}": (variant, datasets)
    for variant, datasets in (
        *((Variant(_DRAWN_AGAIN, method, seed=1), _SMALL) for method in ("qd+", "mve")),
        *(
            (Variant(_DRAWN_AGAIN, method, seed=1), (*_SMALL, "naval"))
            for method in ("qd", "qd-1-layer", "mse")
        ),
        (Variant("a third draw of shuffles", seed=2), ("concrete",)),
        (Variant("PyTorch's default initialisation", initial="kaiming"), ("power",)),
        (Variant(_FULL, full_batches=True), ("boston", *_FEW_LEFT)),
        (Variant(_FULL, "qd-1-layer", full_batches=True), _FEW_LEFT),
        (Variant(_FULL, "mve", full_batches=True), _FEW_LEFT),
        (Variant("rate falls by epoch", by_epoch=True), ("power",)),
        (Variant("standardised by all rows", scaled_by_all=True), ("power",)),
        (Variant("TF32 products", tf32=True), ("power",)),
        (Variant("PyTorch's default initialisation", "qd", initial="kaiming"),
         ("concrete", "energy", "wine")),
        (Variant(_FULL, "qd", full_batches=True), ("energy", *_FEW_LEFT)),
        (Variant("standardised by all rows", "qd", scaled_by_all=True), ("energy",)),
        (Variant("TF32 products", "qd", tf32=True), ("concrete", "energy", "wine")),
        (Variant("a plain loop in NumPy", "qd", plain="numpy"), ("energy",)),
        (Variant("20 further draws", "qd", seed=2, draws=20), ("energy",)),
        (Variant("a plain loop in JAX, double precision", "mse", plain="jax"), ("naval",)),
        (Variant("TF32 products", "qd-1-layer", tf32=True), ("naval",)),
        (Variant("constant inputs are 1", "qd-1-layer", constant_inputs=True), ("naval",)),
        (Variant("TF32 products", "mse", tf32=True), ("naval",)),
        (Variant("constant inputs are 1", "mse", constant_inputs=True), ("naval",)),
        (Variant(_FULL, "mse", full_batches=True), ("naval", *_FEW_LEFT)),
        (Variant("PyTorch's default initialisation", "mse", initial="kaiming"), ("naval",)),
        (Variant("standardised by all rows", "mse", scaled_by_all=True), ("naval",)),
        (Variant("best epoch by the test rows", "mse", best_epoch=True), ("naval",)),
    )
}  # fmt: skip
"""Variants that may explain a difference from the paper, and the datasets they are tried on."""

FUTURE: dict[str, Variant] = {
    "nmpiw": Variant("QD+ with NMPIW", loss="qd+ nmpiw"),
    "split-normal": Variant(
        "split normal likelihood", loss="split normal", aggregations=("density",)
    ),
    "crps": Variant("split normal CRPS", loss="crps", aggregations=("density",)),
    "two-step": Variant("points first, then QD+", steps="further"),
    "two-step-frozen": Variant("points first, then QD+ in the last layer", steps="frozen"),
    "lube": Variant("LUBE", "qd", loss="cwc"),
}
"""What the paper proposes, and the baseline that is a loss (LUBE), at published settings."""
