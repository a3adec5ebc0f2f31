"""`treadle bench`: what Treadle promises, measured."""
