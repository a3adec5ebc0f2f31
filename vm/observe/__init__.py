"""Listeners, and what they measure: profiles, reports, logs of parts."""
