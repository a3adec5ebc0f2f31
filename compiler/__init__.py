"""Programs to executables: meaning and generic rules, the import of models, and targets."""
