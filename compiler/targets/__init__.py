"""What the compiler makes code for: each target is a folder. Code here would count as the translator's."""
