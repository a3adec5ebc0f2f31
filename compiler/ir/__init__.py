"""The IR: a typed functional language in A-normal form.

    module      named functions, data types, imports
    function    parameters, a block
    block       bindings  x = expression,  then the atom that is its value
    atom        a variable, a constant, or a global function as a value
    expression  one operation on atoms; `If`, `Match`, `Loop` and `Function` hold blocks of their own

Every variable is bound once; a block sees the variables of the blocks around it (a `Function` inside a block is a closure
over them). Nodes are immutable and compared by identity. Dimension variables (`n` in `float32[n, 4]`) are bound by the
parameters of the global function they appear in, or by a `MatchShape`. Builders of nested expressions are in
`builder/programs.py`; they produce this form.
"""

from .module import Module
from .nodes import (
    Atom,
    Bind,
    Binding,
    Block,
    Call,
    Constant,
    Construct,
    ConstructorPattern,
    Expr,
    Function,
    GetItem,
    GlobalRef,
    If,
    ImportCall,
    Loop,
    MakeClosure,
    MakeTuple,
    Match,
    MatchShape,
    OperatorCall,
    Pattern,
    PrimitiveCall,
    TuplePattern,
    Var,
    Weight,
    Wildcard,
    atoms_of,
    blocks_of,
    frozen,
    map_atoms,
    pattern_vars,
)

__all__ = [
    "Atom",
    "Bind",
    "Binding",
    "Block",
    "Call",
    "Constant",
    "Construct",
    "ConstructorPattern",
    "Expr",
    "Function",
    "GetItem",
    "GlobalRef",
    "If",
    "ImportCall",
    "Loop",
    "MakeClosure",
    "MakeTuple",
    "Match",
    "MatchShape",
    "Module",
    "OperatorCall",
    "Pattern",
    "PrimitiveCall",
    "TuplePattern",
    "Var",
    "Weight",
    "Wildcard",
    "atoms_of",
    "blocks_of",
    "frozen",
    "map_atoms",
    "pattern_vars",
]
