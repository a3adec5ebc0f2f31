"""The CPU: its passes, layouts, kernels, costs and tuning."""
