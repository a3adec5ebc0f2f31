"""Templates that work row by row: reductions, normalisations, attention, recurrent layers."""
