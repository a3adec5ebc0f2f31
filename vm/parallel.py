"""Parallel kernels, the native side: one loop at a time, whose parts the calling thread and the pool's workers take.

Each thread has a share of neighbouring parts: the same rows of one kernel after another, which are in its caches. Owners
take from the front of their share, thieves from the back. What is left of a share is one
word, the thread's *ticket*; taking a part is a compare-and-swap of it. The ticket has the loop's number in it, so a worker that
comes late, from a loop that is over, takes nothing of the next one. A thread finds all that it needs on its ticket's
cache line. Workers spin for a while between loops, then sleep; waking them is only paid for when they sleep.

A worker that sleeps may be woken on the caller's own core, although another is idle, and then waits there for milliseconds: so
the caller confines it to other cores before.

A worker whose core other programs use too may be preempted in the middle of a part, for the milliseconds of a time slice,
and the caller waits. It then does without that worker for some time, with exponential back-off.
"""

from __future__ import annotations

from ..native.convention import STOP_WORD, STOPPED
from ..native.intrinsics import (
    atomic_add,
    atomic_load,
    atomic_replace,
    atomic_store,
    call_function,
    call_kernel,
    call_python,
    clock,
    copy,
    free,
    load,
    malloc,
    relax,
    store,
)
from ..native.words import inlined
from .layout import CONTEXT, LOG, LOG_ENTRY, MAX_PROCESSORS, MEMBER, MEMBER_WORDS, POOL, PRIMITIVE, SLEEPER, WORD

EPOCHS = 0x7FFFFFFF
MAX_PARTS = 0xFFFF
FIRST_PART = 1 << 16  # of the first part in a ticket; the end counts in ones

RESTS_A_YIELD = 16  # of an idle worker, which take about as long as a call of the system does

# Milliseconds
BACK_OFF = 8  # that a hindered worker is left out at first; each time again twice as long …
LONGEST_BACK_OFF = 64
CALM = 32  # … unless it has taken part for so long since
LOOK = 50  # between two looks at which processors there are
FOREVER = 0x7FFFFFFFFFFFFFFF


@inlined
def member_at(pool, index):
    return pool + WORD * (POOL.WORDS + MEMBER_WORDS * index)


@inlined
def epoch_of(ticket):
    return ticket >> 32


@inlined
def first_of(ticket):
    return ticket >> 16 & MAX_PARTS


@inlined
def end_of(ticket):
    return ticket & MAX_PARTS


def note_part(log, index, part, parts, begin):
    """Writes down that the member `index` has just done a part."""
    entry = atomic_add(log, LOG.COUNT, 1)
    if entry < load(log, LOG.ROOM):
        at = log + WORD * (LOG.WORDS + LOG_ENTRY.WORDS * entry)
        store(at, LOG_ENTRY.MEMBER, index)
        store(at, LOG_ENTRY.PART, part)
        store(at, LOG_ENTRY.PARTS, parts)
        store(at, LOG_ENTRY.BEGIN, begin)
        store(at, LOG_ENTRY.END, clock())
    return 0


def take_parts(pool, index, epoch):
    """Does parts of the loop `epoch` until there are no more."""
    mine = member_at(pool, index)
    kernel, arguments = load(mine, MEMBER.KERNEL), load(mine, MEMBER.ARGUMENTS)
    parts, members = load(mine, MEMBER.PARTS), load(mine, MEMBER.MEMBERS)
    scratch, log, is_new = load(mine, MEMBER.SCRATCH), load(mine, MEMBER.LOG), 1
    for turn in range(members):
        other = member_at(pool, index + turn if index + turn < members else index + turn - members)
        done = 0
        while True:
            ticket = atomic_load(other, MEMBER.TICKET)
            if epoch_of(ticket) != epoch or first_of(ticket) == end_of(ticket):
                break
            part = first_of(ticket) if turn == 0 else end_of(ticket) - 1
            # what was read above belongs to this loop if this succeeds: it cannot end before its parts are done
            if atomic_replace(other, MEMBER.TICKET, ticket, ticket + (FIRST_PART if turn == 0 else -1)) == 0:
                continue
            if is_new == 1 and scratch != 0:
                store(scratch, 0, -1)
            is_new = 0
            atomic_store(mine, MEMBER.WORKING, 1)
            begin = clock() if log != 0 else 0
            failure = STOPPED
            if load(arguments, STOP_WORD) == 0:
                failure = call_kernel(kernel, arguments, scratch, part, parts)
            if log != 0:
                note_part(log, index, part, parts, begin)
            atomic_store(mine, MEMBER.WORKING, 0)
            if failure != 0:
                atomic_store(pool, POOL.FAILURE, failure)
            done += 1
        if done > 0:
            atomic_add(pool, POOL.DONE, done)
    return 0


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


def own(pool):
    """Takes the workers for one loop, or to change them. 0 if someone else has them; who takes them clears BUSY."""
    return atomic_replace(pool, POOL.BUSY, 0, 1)


def leave(pool):
    """Lets others have the workers, who see all that was changed before: a plain store of Python's promises that on x86 alone."""
    atomic_store(pool, POOL.BUSY, 0)
    return 0


@inlined
def free_threads(pool):
    """How many threads a call may use: those that other calls run on would only be shared."""
    return load(pool, POOL.LIMIT) + 1 - atomic_load(pool, POOL.ACTIVE)


def available_threads(pool):
    """How many threads may share a loop. Workers that have been left out for long enough are among them again."""
    if load(pool, POOL.HINDERED) > 0:
        now = clock()
        for index in range(1, load(pool, POOL.THREADS)):
            member = member_at(pool, index)
            if load(member, SLEEPER.LEFT_OUT) == 1 and load(member, SLEEPER.RETURN) <= now:
                store(member, SLEEPER.LEFT_OUT, 0)
                store(pool, POOL.HINDERED, load(pool, POOL.HINDERED) - 1)
    return min(load(pool, POOL.LIMIT), load(pool, POOL.THREADS) - load(pool, POOL.HINDERED))


def see_processors(pool):
    """Follows changes of the processors that the caller may use: workers run on these alone, and no more of them than there are,
    unless the user has chosen how many. For who has the workers."""
    now = clock()
    if load(pool, POOL.ASK) == 0 or now <= load(pool, POOL.NEXT_LOOK):
        return 0
    store(pool, POOL.NEXT_LOOK, now + LOOK * load(pool, POOL.MILLISECOND))
    size, allowed = MAX_PROCESSORS >> 3, load(pool, POOL.ALLOWED)
    seen, changed, count = allowed + size, 0, 0
    if call_python(load(pool, POOL.ASK), 0, size, seen, 0, 0, 0, 0, 0) & 0xFFFFFFFF != 0:
        return 0
    for k in range(MAX_PROCESSORS >> 6):
        bits = load(seen, k)
        changed |= bits ^ load(allowed, k)
        while bits != 0:
            bits &= bits - 1
            count += 1
    threads, chosen = load(pool, POOL.THREADS), load(pool, POOL.CHOSEN)
    if changed == 0 or (chosen == 1 and count < threads):
        return 0
    copy(allowed, seen, size)
    store(pool, POOL.LIMIT, threads if chosen == 1 else min(count, threads))
    for index in range(1, threads):
        member = member_at(pool, index)
        if load(member, SLEEPER.THREAD) != 0:
            call_python(load(pool, POOL.CONFINE), load(member, SLEEPER.THREAD), size, allowed, 0, 0, 0, 0, 0)
        store(member, SLEEPER.APART, 0)
    return 0


def see_more_processors(pool):
    """For calls that run alone because there were too few."""
    if own(pool) == 1:
        see_processors(pool)
        atomic_store(pool, POOL.BUSY, 0)
    return 0


def run_parts(context, primitive, arguments, parts, threads):
    """A kernel's parts on `threads` threads; alone, in one part, while another call has the workers. Its failure code."""
    pool, kernel, scratch = (
        load(context, CONTEXT.POOL),
        load(primitive, PRIMITIVE.KERNEL),
        load(context, CONTEXT.SCRATCH),
    )
    if parts <= 1 or own(pool) == 0:
        return call_kernel(kernel, arguments, scratch, 0, 1)
    parts = min(parts, MAX_PARTS)
    see_processors(pool)
    # of the threads that were free when the kernel was asked, some may have gone: there is scratch memory for THREADS
    needed, members = load(primitive, PRIMITIVE.SCRATCH), min(threads, parts, available_threads(pool))
    room = load(context, CONTEXT.MAX_LIVE) - members * needed
    if members == 1 or load(context, CONTEXT.LIVE) > room or fit_scratch(pool, needed) == 0:
        atomic_store(pool, POOL.BUSY, 0)
        return call_kernel(kernel, arguments, scratch, 0, 1)
    store(pool, POOL.FAILURE, 0)
    atomic_store(pool, POOL.DONE, 0)
    last = publish(pool, kernel, arguments, scratch, needed, parts, members, load(context, CONTEXT.LOG))
    wake(pool, last)
    start = clock()
    take_parts(pool, 0, load(pool, POOL.EPOCH))
    if atomic_load(pool, POOL.DONE) < parts:
        await_workers(pool, parts, last, start)
    failure = load(pool, POOL.FAILURE)
    atomic_store(pool, POOL.BUSY, 0)
    return failure


def last_member(pool, members):
    """The last of `members` members, the caller and the first workers that are not left out."""
    if load(pool, POOL.HINDERED) == 0:
        return members - 1
    last = 0
    for _ in range(1, members):
        last += 1
        while load(member_at(pool, last), SLEEPER.LEFT_OUT) == 1:
            last += 1
    return last


def publish(pool, kernel, arguments, scratch, needed, parts, members, log):
    """Gives `members` members their shares of a new loop. Returns the last of them."""
    last, rank, epoch = last_member(pool, members), members, load(pool, POOL.EPOCH) + 1 & EPOCHS
    store(pool, POOL.EPOCH, epoch)
    for index in range(last, -1, -1):
        member = member_at(pool, index)
        if load(member, SLEEPER.LEFT_OUT) == 1:
            continue
        rank -= 1
        own_scratch = scratch if index == 0 else load(pool, POOL.SCRATCH) + (index - 1) * load(pool, POOL.STRIDE)
        store(member, MEMBER.KERNEL, kernel)
        store(member, MEMBER.ARGUMENTS, arguments)
        store(member, MEMBER.PARTS, parts)
        store(member, MEMBER.MEMBERS, last + 1)
        store(member, MEMBER.LOG, log)
        store(member, MEMBER.SCRATCH, own_scratch if needed > 0 else 0)
        share = parts * rank // members * FIRST_PART + parts * (rank + 1) // members
        atomic_store(member, MEMBER.TICKET, (epoch << 32) + share)
    return last


@inlined
def yield_core(pool):
    """Lets other threads have the core, if there are any: perhaps the one that is waited for."""
    if load(pool, POOL.YIELD) != 0:
        call_function(load(pool, POOL.YIELD), 0, 0)


def await_workers(pool, parts, last, start):
    """Waits until the parts that workers have are done. The caller began to do its own at `start`."""
    spins, now = 0, clock()
    # whose parts are of unlike lengths may wait for as long as it has worked itself
    patience = now + 2 * (now - start) + load(pool, POOL.MILLISECOND) // 2
    if load(pool, POOL.MILLISECOND) == 0:
        patience = FOREVER
    while atomic_load(pool, POOL.DONE) < parts:
        relax()
        spins += 1
        if spins > load(pool, POOL.YIELD_SPINS):
            yield_core(pool)
            if clock() > patience:
                leave_out(pool, last)
                patience = FOREVER
    return 0


def leave_out(pool, last):
    """Leaves those workers out that have parts and do not finish them."""
    now, millisecond = clock(), load(pool, POOL.MILLISECOND)
    for index in range(1, last + 1):
        member = member_at(pool, index)
        if atomic_load(member, MEMBER.WORKING) == 0 or load(member, SLEEPER.LEFT_OUT) == 1:
            continue
        back_off = BACK_OFF * millisecond
        if now - load(member, SLEEPER.RETURN) < CALM * millisecond:
            back_off = min(2 * load(member, SLEEPER.BACK_OFF), LONGEST_BACK_OFF * millisecond)
        store(member, SLEEPER.BACK_OFF, back_off)
        store(member, SLEEPER.RETURN, now + back_off)
        store(member, SLEEPER.LEFT_OUT, 1)
        store(pool, POOL.HINDERED, load(pool, POOL.HINDERED) + 1)
    return 0


def wake(pool, last):
    """Wakes those workers up to the last one of a loop that sleep."""
    for index in range(1, last + 1):
        member = member_at(pool, index)
        if load(member, SLEEPER.LEFT_OUT) == 1:
            continue
        # orders itself after the tickets: a worker says that it sleeps, then looks at its ticket once more
        if atomic_add(member, SLEEPER.ASLEEP, 0) > 0:
            keep_apart(pool, member)
            call_function(load(pool, POOL.LOCK), load(member, SLEEPER.MUTEX), 0)
            call_function(load(pool, POOL.SIGNAL), load(member, SLEEPER.CONDITION), 0)
            call_function(load(pool, POOL.UNLOCK), load(member, SLEEPER.MUTEX), 0)
    return 0


def keep_apart(pool, member):
    """Confines a worker to the processors that the caller is not on."""
    if load(pool, POOL.PROCESSOR) == 0:
        return 0
    processor = call_function(load(pool, POOL.PROCESSOR), 0, 0)
    if processor < 0 or processor >= MAX_PROCESSORS or processor + 1 == load(member, SLEEPER.APART):
        return 0
    allowed, word = load(pool, POOL.ALLOWED), processor >> 6
    bits = load(allowed, word)
    store(allowed, word, bits & ~(1 << (processor & 63)))
    # where no processor is left, it does nothing
    call_python(load(pool, POOL.CONFINE), load(member, SLEEPER.THREAD), MAX_PROCESSORS >> 3, allowed, 0, 0, 0, 0, 0)
    store(allowed, word, bits)
    store(member, SLEEPER.APART, processor + 1)
    return 0


@inlined
def is_idle(pool, member, seen):
    """True while a worker has no share but that of the loop that it has seen."""
    return epoch_of(atomic_load(member, MEMBER.TICKET)) == seen and atomic_load(pool, POOL.STOP) == 0


def sleep(pool, member, seen):
    """Waits for a loop without using the processor."""
    call_function(load(pool, POOL.LOCK), load(member, SLEEPER.MUTEX), 0)
    atomic_add(member, SLEEPER.ASLEEP, 1)
    while is_idle(pool, member, seen):
        call_function(load(pool, POOL.WAIT), load(member, SLEEPER.CONDITION), load(member, SLEEPER.MUTEX))
    atomic_add(member, SLEEPER.ASLEEP, -1)
    call_function(load(pool, POOL.UNLOCK), load(member, SLEEPER.MUTEX), 0)
    return 0


def work(pool, index, seen):
    """The life of a worker, the member `index`: until STOP, or, where there is nothing to sleep on, until it is idle. The
    last epoch that it has seen, -1 after STOP."""
    member = member_at(pool, index)
    while True:
        spins = 0
        while is_idle(pool, member, seen) and spins < load(pool, POOL.WORKER_SPINS):
            relax()
            spins += 1
            if spins > load(pool, POOL.YIELD_SPINS) and spins % RESTS_A_YIELD == 0:
                yield_core(pool)
        if is_idle(pool, member, seen):
            if load(pool, POOL.WAIT) == 0:
                return seen
            sleep(pool, member, seen)
        if atomic_load(pool, POOL.STOP) != 0:
            return -1
        seen = epoch_of(atomic_load(member, MEMBER.TICKET))
        take_parts(pool, index, seen)


def ticks():
    """The processor's clock now."""
    return clock()


def rest(count):
    """A worker's pause between two polls, `count` times, to be measured: its duration by the processor's clock."""
    start = clock()
    for _ in range(count):
        relax()
    return clock() - start
