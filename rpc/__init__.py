"""Devices in other processes and on other hosts: the client's side."""
