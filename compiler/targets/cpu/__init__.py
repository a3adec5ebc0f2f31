"""The CPU: its passes, layouts, kernels and costs."""
