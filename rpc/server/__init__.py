"""The server's side of remote devices, which `treadle serve --remote` mounts."""
