"""Parallel kernels, the native side: one loop at a time, whose parts the calling thread and the pool's workers take.

A loop is published by its *ticket*, the word NEXT: its epoch in the upper half, its next part in the lower. Taking a part is
a compare-and-swap of the whole ticket, so a worker that comes late, from a loop that is over, takes nothing of the next
one. Workers spin for a while between loops, then sleep; waking them is only paid for when one sleeps.
"""

from __future__ import annotations

from .heap import inlined, native
from .intrinsics import (
    atomic_add,
    atomic_load,
    atomic_replace,
    atomic_store,
    call_function,
    call_kernel,
    free,
    load,
    malloc,
    relax,
    store,
)
from .layout import CONTEXT, POOL, PRIMITIVE

CLOSED = 0xFFFFFFFF  # in place of a part: the loop is not ready
EPOCHS = 0x7FFFFFFF

WORKER_SPINS = 20_000  # some 100 µs: from one parallel kernel to the next, also across a call from Python
CALLER_SPINS = 2_000  # then other threads may have the core: a worker's, perhaps


@inlined
def epoch_of(ticket):
    return ticket >> 32


@inlined
def part_of(ticket):
    return ticket & CLOSED


@native
def take_parts(pool, epoch, scratch):
    """Does parts of the loop `epoch` until there are no more."""
    kernel, arguments, parts = load(pool, POOL.KERNEL), load(pool, POOL.ARGUMENTS), load(pool, POOL.PARTS)
    while True:
        ticket = atomic_load(pool, POOL.NEXT)
        if epoch_of(ticket) != epoch or part_of(ticket) >= parts:
            return 0
        # what was read above belongs to this loop if this succeeds: it cannot end before its parts are done
        if atomic_replace(pool, POOL.NEXT, ticket, ticket + 1) == 1:
            failure = call_kernel(kernel, arguments, scratch, part_of(ticket), parts)
            if failure != 0:
                atomic_store(pool, POOL.FAILURE, failure)
            atomic_add(pool, POOL.DONE, 1)


@native
def fit_scratch(pool, needed):
    """Scratch memory for each worker. 1 if there is enough."""
    if needed <= load(pool, POOL.STRIDE):
        return 1
    free(load(pool, POOL.BLOCK))
    stride = needed + 63 & -64
    block = malloc(stride * load(pool, POOL.THREADS) + 64)
    store(pool, POOL.BLOCK, block)
    store(pool, POOL.SCRATCH, block + 63 & -64)
    store(pool, POOL.STRIDE, stride if block != 0 else 0)
    return 1 if block != 0 else 0


@native
def own(pool):
    """Takes the pool for one loop, or to change it. 0 if someone else has it; who takes it clears BUSY."""
    return atomic_replace(pool, POOL.BUSY, 0, 1)


@native
def run_parts(context, primitive, arguments, parts):
    """A kernel's parts on the pool's threads; alone, in one part, while another call has the pool. Its failure code."""
    pool, kernel, scratch = (
        load(context, CONTEXT.POOL),
        load(primitive, PRIMITIVE.KERNEL),
        load(context, CONTEXT.SCRATCH),
    )
    if parts <= 1 or own(pool) == 0:
        return call_kernel(kernel, arguments, scratch, 0, 1)
    if fit_scratch(pool, load(primitive, PRIMITIVE.SCRATCH)) == 0:
        atomic_store(pool, POOL.BUSY, 0)
        return call_kernel(kernel, arguments, scratch, 0, 1)
    epoch = epoch_of(load(pool, POOL.NEXT)) + 1 & EPOCHS
    atomic_store(pool, POOL.NEXT, (epoch << 32) + CLOSED)
    store(pool, POOL.KERNEL, kernel)
    store(pool, POOL.ARGUMENTS, arguments)
    store(pool, POOL.PARTS, parts)
    store(pool, POOL.FAILURE, 0)
    atomic_store(pool, POOL.DONE, 0)
    atomic_store(pool, POOL.NEXT, epoch << 32)
    wake(pool)
    take_parts(pool, epoch, scratch)
    spins = 0
    while atomic_load(pool, POOL.DONE) < parts:
        relax()
        spins += 1
        if spins > CALLER_SPINS and load(pool, POOL.YIELD) != 0:
            call_function(load(pool, POOL.YIELD), 0, 0)
    failure = load(pool, POOL.FAILURE)
    atomic_store(pool, POOL.BUSY, 0)
    return failure


@native
def wake(pool):
    """Wakes the workers that sleep. The read orders itself behind the ticket: a worker counts itself as sleeping, then
    looks at the ticket once more."""
    if atomic_add(pool, POOL.SLEEPERS, 0) > 0:
        call_function(load(pool, POOL.LOCK), load(pool, POOL.MUTEX), 0)
        call_function(load(pool, POOL.BROADCAST), load(pool, POOL.CONDITION), 0)
        call_function(load(pool, POOL.UNLOCK), load(pool, POOL.MUTEX), 0)
    return 0


@inlined
def is_idle(pool, seen):
    """True while there is no loop but those that a worker has seen."""
    ticket = atomic_load(pool, POOL.NEXT)
    return (epoch_of(ticket) == seen or part_of(ticket) == CLOSED) and atomic_load(pool, POOL.STOP) == 0


@native
def sleep(pool, seen):
    """Waits for a loop without using the processor."""
    call_function(load(pool, POOL.LOCK), load(pool, POOL.MUTEX), 0)
    atomic_add(pool, POOL.SLEEPERS, 1)
    while is_idle(pool, seen):
        call_function(load(pool, POOL.WAIT), load(pool, POOL.CONDITION), load(pool, POOL.MUTEX))
    atomic_add(pool, POOL.SLEEPERS, -1)
    call_function(load(pool, POOL.UNLOCK), load(pool, POOL.MUTEX), 0)
    return 0


@native
def work(pool, index, seen):
    """The life of worker `index`: until STOP, or, where there is nothing to sleep on, until it is idle. The last epoch that
    it has seen, -1 after STOP."""
    while True:
        spins = 0
        while is_idle(pool, seen) and spins < WORKER_SPINS:
            relax()
            spins += 1
        if is_idle(pool, seen):
            if load(pool, POOL.WAIT) == 0:
                return seen
            sleep(pool, seen)
        if atomic_load(pool, POOL.STOP) != 0:
            return -1
        seen = epoch_of(atomic_load(pool, POOL.NEXT))
        if index + 1 < load(pool, POOL.THREADS):
            take_parts(pool, seen, load(pool, POOL.SCRATCH) + index * load(pool, POOL.STRIDE))
