"""TVM's passes over Relay's own expressions: small functions from expression to expression. `transform.py` has their names.

What an executable needs, Treadle's compiler does itself after Relay; these are for scripts that transform a module and
look at what has become of it.
"""
