"""The process that `confined.py` starts: it answers requests by a script beside this file, and can do nothing else.

What the script is asked comes from anywhere. This process' limits keep it within bounds of memory, and its parent's clock within
bounds of time; it opens no file once it runs.
"""

import json
import runpy
import sys


def main(script: str, memory: int, modules: "list[str]") -> None:
    """Answers requests, lines of JSON, from standard input until it ends. The script's `prepare` gives the function that
    does, of objects to objects."""
    sys.path[:] = modules
    answer_to = runpy.run_path(script)["prepare"]()
    try:
        import resource
    except ImportError:  # Windows: time and what is read back are bounded
        pass
    else:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    for line in sys.stdin:
        try:
            answer = answer_to(json.loads(line))
        except (MemoryError, RecursionError) as error:
            answer = {"error": f"it took too much: {type(error).__name__}"}
        except Exception as error:
            answer = {"error": f"{error}"[:500] or type(error).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
