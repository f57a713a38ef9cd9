"""Read damaged inputs for a while: `python -m tests.fuzz --seconds 300`. One is read again by --reader and --seed."""

import argparse
import collections
import random
import sys
import time
import traceback

from tests.fuzz.readers import READERS, HangError, read_damaged


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--reader", choices=READERS, action="append", help="only this reader (default: all)")
    parser.add_argument("--seed", type=int, help="read only the input of this seed")
    args = parser.parse_args()
    readers = args.reader or list(READERS)
    seeds = iter([args.seed] * len(readers)) if args.seed is not None else iter(lambda: random.getrandbits(32), None)
    end = time.monotonic() + args.seconds
    num_inputs: collections.Counter[str] = collections.Counter()
    num_failures: collections.Counter[str] = collections.Counter()
    while time.monotonic() < end:
        for reader in readers:
            seed = next(seeds, None)
            if seed is None:
                end = 0.0
                break
            num_inputs[reader] += 1
            try:
                read_damaged(reader, seed)
            except (Exception, HangError) as error:
                num_failures[reader] += 1
                lines = str(error).strip().splitlines() or [""]
                print(f"\n--reader {reader} --seed {seed}: {type(error).__name__}: {lines[-1][:300]}", flush=True)
                if args.seed is not None:
                    traceback.print_exc()
    for reader in readers:
        print(f"{reader:20} {num_inputs[reader]:6} inputs {num_failures[reader]:4} failures")
    return int(bool(num_failures))


if __name__ == "__main__":
    sys.exit(main())
