"""Programs to executables: meaning and generic rules, the import of models, and targets."""

operators_of_targets = f"{__name__}.targets.cpu.operators"  # the module that adds them to the table
