"""`treadle map`: a function of an executable over the rows of a file, by several processes, into another file."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from . import arguments
from .arguments import require_file
from .errors import UsageError
from .program_files import HELP, add_compile_options, compile_options, program_file

COMMANDS = {"Run models": ("map",)}


def add_commands(commands: Any) -> None:
    """Adds `map` to the command line."""
    command = commands.add_parser(
        "map", help="compute a function of each row of a file, by several processes, into another file"
    )
    command.add_argument(
        "source",
        help="a file .parquet, .csv, .arrow or .npy; its columns are the inputs, by name, or those of the one matrix",
    )
    command.add_argument(
        "output", type=Path, help="a file .parquet, .csv or .arrow; its columns are the results, by name"
    )
    command.add_argument("--model", required=True, metavar="PROGRAM", help=HELP)
    command.add_argument(
        "--function",
        help="the function to call (default: main, or encode, classify, score or generate of a tokenizer's model)",
    )
    command.add_argument(
        "--max-new-tokens", type=int, metavar="N", help="of an answer (default: as many as there is room)"
    )
    command.add_argument(
        "--temperature", type=float, metavar="T", help="of answers (default: the likeliest tokens are taken)"
    )
    command.add_argument("--seed", type=int, metavar="N", help="of the answers' random numbers")
    command.add_argument("--chat", action="store_true", help="prompts are what a user says, by the chat template")
    command.add_argument("--batch-size", type=int, default=256, metavar="ROWS", help="of a call (default: 256)")
    command.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one for each processor; to generate, one)"
    )
    command.add_argument(
        "--threads", type=int, metavar="N", help="threads of each (default: the processors shared out)"
    )
    command.add_argument("--max-seconds", type=arguments.seconds, metavar="N", help="that a batch may take")
    command.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="keeps finished batches until all are done, so that the same command goes on where it was (default: OUTPUT.parts)",
    )
    command.add_argument("--quiet", action="store_true", help="no progress")
    add_compile_options(command)
    command.set_defaults(command=map_command)


def map_command(options: argparse.Namespace) -> int:
    from ..cluster.batches import map_batches
    from ..cluster.runner import Signature
    from ..cluster.tables import TableWriter
    from ..text.models import ROW_FUNCTIONS

    require_file(options.source)
    if options.output.exists() and options.output.samefile(options.source):
        raise UsageError(f"{options.output} itself would be written over")
    start = time.perf_counter()
    of_texts = [each.name for each in ROW_FUNCTIONS.values()]  # which models with a tokenizer have besides
    executable = program_file(options.model).executable(
        entry=None if options.function in (None, "main", *of_texts) else options.function,
        **compile_options(options),
        kernels=True,
        progress=not options.quiet,
    )
    names = Signature(executable, options.function).results
    kept = options.checkpoint or options.output.with_name(f"{options.output.name}.parts")
    with TableWriter(options.output, names) as writer:
        results = map_batches(
            executable,
            options.source,
            batch_size=options.batch_size,
            function=options.function,
            workers=options.workers,
            threads=options.threads,
            max_seconds=options.max_seconds,
            checkpoint=kept,
            progress=not options.quiet,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            seed=options.seed,
            chat=options.chat or None,
        )
        try:
            with results:
                for result in results:
                    writer.write(result if isinstance(result, tuple) else (result,))
        except KeyboardInterrupt:
            print(f"treadle map: what is done is in {kept}; the same command goes on there", file=sys.stderr)
            raise
    shutil.rmtree(kept)
    report = {"output": str(options.output), "rows": writer.rows, "seconds": round(time.perf_counter() - start, 3)}
    text = f"{options.output}: {writer.rows} rows in {report['seconds']:.2f} s"
    print(json.dumps(report) if options.json else text)
    return 0
