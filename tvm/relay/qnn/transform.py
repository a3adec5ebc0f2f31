"""`relay.qnn.transform`: passes that put other operators in the place of quantised ones. Treadle's compiler does so itself; here
they give the module as it is."""

from ..transform import kept

CanonicalizeOps, Legalize = kept("QnnCanonicalizeOps"), kept("QnnLegalize")

__all__ = ["CanonicalizeOps", "Legalize"]
