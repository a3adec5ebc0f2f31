"""Queueing theory's exact results, which the simulation must reproduce. Kleinrock, Queueing Systems, volume 1 (1975).

Rates are requests a second, times are seconds; `load` is the share of time that a server works, below 1.
"""

from __future__ import annotations


def erlang_c(servers: int, rate: float, service: float) -> float:
    """The probability that a request of M/M/c waits. Raises ValueError where the servers are not enough."""
    offered = rate * service  # in erlangs
    if offered >= servers:
        raise ValueError(f"{servers} servers cannot take {offered:g} erlangs")
    blocked = 1.0  # Erlang's B, by its recursion over servers
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmc_wait(servers: int, rate: float, service: float) -> float:
    """Mean seconds that a request of M/M/c waits for a server."""
    return erlang_c(servers, rate, service) * service / (servers - rate * service)


def md1_wait(rate: float, service: float) -> float:
    """Mean wait of M/D/1: Pollaczek and Khinchine's formula for times that do not vary."""
    load = rate * service
    if load >= 1:
        raise ValueError(f"a server cannot take a load of {load:g}")
    return load * service / (2 * (1 - load))


def mm1k_refused(room: int, rate: float, service: float) -> float:
    """The share of requests that M/M/1/K refuses: one server, `room` requests that are there, the one served included."""
    load = rate * service
    if load == 1:
        return 1 / (room + 1)
    return (1 - load) * load**room / (1 - load ** (room + 1))


def closed_rate(clients: int, servers: int, service: float, think: float) -> float:
    """Answers a second, where so many clients each think, wait for a server and are served (M/M/c//N, the machine repairman)."""
    weight, busy, total = 1.0, 0.0, 1.0  # of the state that no client is at a server; states follow by balance
    for here in range(1, clients + 1):
        weight *= (clients - here + 1) * service / (think * min(here, servers))
        total += weight
        busy += weight * min(here, servers)
    return busy / total / service
