"""The `verify` command."""

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from torchtriage.commands.base import (
    format_of,
    harmless_json,
    say,
    wants_colour,
    write_file,
    write_out,
)
from torchtriage.commands.shapes import parse_number
from torchtriage.config import Config
from torchtriage.errors import CommandError
from torchtriage.text import counted, listed

if TYPE_CHECKING:
    from torchtriage.findings.proof.verdict import Proof
    from torchtriage.proof.sides import Side
    from torchtriage.proof.verify import ProofOptions

DEFAULT_BUDGET = "10m"
FORMATS = ("text", "json", "markdown", "html")
EXAMPLE = "torchtriage verify before.py after.py"


class VerifyCommand:
    """Prove, or refute, that a change cures a finding, keeps the numbers and is not slower.

    torchtriage verify before.py after.py -- --epochs 1     two scripts with the same arguments
    torchtriage verify --before CMD --after CMD             two commands, each in quotes
    torchtriage verify --rev HEAD~1 --rev . train.py        two revisions; . is the working tree
    torchtriage verify --eager train.py                     one script, eager and compiled
    torchtriage verify --python OLD --python NEW train.py   one script under two interpreters
    torchtriage verify old.triage new.triage                two recordings; only what they hold

    Both sides run several times in separate processes, with the same seed and an empty compile cache, in a copy of the
    working folder. BEFORE also runs eager with every result moved by one rounding: this measures which differences of
    losses, gradients, weights and printed numbers are rounding. Exit status: 0 verified, 1 refuted, 2 undecided.
    """

    name = "verify"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--before", metavar="CMD", help="the command before the change")
        parser.add_argument("--after", metavar="CMD", help="the command after the change")
        parser.add_argument("--rev", metavar="REV", action="append", help=(
            "a git revision, given twice: before and after the change"
        ))
        parser.add_argument("--python", metavar="PATH", action="append", help=(
            "a Python interpreter, given twice: before and after an upgrade"
        ))
        parser.add_argument("--eager", action="store_true", help="compare the script with itself run eager")
        parser.add_argument("--locate", action="store_true", help=(
            "name the first operation that differs, if the numbers do (implied by --eager)"
        ))
        parser.add_argument("--steps", metavar="N", help="end every run after this many optimizer steps")
        parser.add_argument("--budget", metavar="TIME", help=(
            f"how long the runs may take, such as 90s, 10m or 1h (default: {DEFAULT_BUDGET})"
        ))
        parser.add_argument("--seed", metavar="N", help="the seed of every run (default: 0)")
        parser.add_argument("--fixes", metavar="CODES", help=(
            "codes or fingerprints of findings that must be gone (default: at least one finding)"
        ))
        group = parser.add_argument_group("output")
        group.add_argument("-o", "--output", metavar="FILE", help="write the report to a file: .html .md .json .txt")
        group.add_argument("-f", "--force", action="store_true", help="overwrite existing output")
        group.add_argument("-q", "--quiet", action="store_true", help="print only the report and errors")
        group.add_argument("--format", choices=FORMATS, help="format of the report (default: text)")
        group.add_argument("--color", choices=("auto", "always", "never"), help="colour the text (default: auto)")
        parser.add_argument("words", nargs="*", metavar="before.py after.py", help=(
            "two scripts or recordings; one script with --eager, --rev or --python; its arguments after --"
        ))

    def run(self, args: argparse.Namespace, config: Config) -> int:
        if args.output and Path(args.output).exists() and not args.force:
            raise CommandError(f"{args.output} exists; overwrite it with --force, or name another file")
        format_ = format_of(config, args.output)
        if format_ not in FORMATS:
            raise CommandError(f"a proof cannot be written as {format_}; it can be: {', '.join(FORMATS)}")
        try:
            proof = proof_of(args)
        except KeyboardInterrupt:
            raise CommandError("interrupted; nothing was proven", exit_code=130) from None
        text = rendered(proof, format_, colour=not args.output and wants_colour(config))
        if args.output:
            write_file(Path(args.output), text, args)
            say(args, f"{proof.verdict}: see {args.output}")
        else:
            write_out(harmless_json(text) if format_ == "json" else text)
        return proof.verdict.exit_code


def rendered(proof: "Proof", format_: str, *, colour: bool) -> str:
    if format_ == "html":
        from torchtriage.reporters.proof.page import render as page

        return page(proof)
    if format_ == "json":
        from torchtriage.reporters.proof.json import render as json_text

        return json_text(proof)
    if format_ == "markdown":
        from torchtriage.reporters.proof.markdown import render as markdown

        return markdown(proof)
    from torchtriage.reporters.proof.text import render as text

    return text(proof, width=min(100, shutil.get_terminal_size((80, 40)).columns), colour=colour)


def proof_of(args: argparse.Namespace) -> "Proof":
    from torchtriage.proof.sides import are_recordings
    from torchtriage.proof.verify import prove, verify_recordings, work_folder

    options, words = options_of(args), [*args.words, *args.script_arguments]
    check_one_form(args)
    is_pair = not (args.rev or args.python or args.eager or args.before or args.after)
    if is_pair:
        if len(args.words) != 2:
            number = counted(len(args.words), "script is", "scripts are")
            given = f"{number} given" if args.words else "nothing to compare"
            raise CommandError(
                f"{given}; give the script before and after the change, arguments after --: {EXAMPLE} -- ARGS")
        if are_recordings(words[0], words[1]):
            return verify_recordings(words[0], words[1], options)
    with work_folder() as work:
        from torchtriage.proof.sides import Worktrees

        worktrees = Worktrees(work, options.say)
        try:
            before, after = sides_of(args, words, work, worktrees)
            return prove(before, after, work, options)
        finally:
            worktrees.remove()


def options_of(args: argparse.Namespace) -> "ProofOptions":
    from torchtriage.findings import catalogue
    from torchtriage.proof.verify import ProofOptions

    fixes = [name.strip() for name in (args.fixes or "").split(",") if name.strip()]
    unknown = [name for name in fixes if name.startswith("TT") and name not in catalogue.codes()]
    if unknown:
        raise CommandError(f"--fixes: no rule {listed(unknown)}; list the rules with: torchtriage explain")
    seed = 0 if args.seed == "0" else parse_number(args.seed, "--seed", 0)
    options = ProofOptions(
        budget=args.budget or DEFAULT_BUDGET, steps=parse_number(args.steps, "--steps", 0) or None, seed=seed,
        must_fix=fixes, locate=args.locate or args.eager, say=lambda text: say(args, text), keep_stdin=True)
    if options.seconds <= 0:
        raise CommandError(f"--budget {args.budget} is not a duration")
    return options


def check_one_form(args: argparse.Namespace) -> None:
    """The ways to name the sides exclude each other, and those with two halves need both."""
    forms = {
        "--before and --after": args.before or args.after, "--rev": args.rev, "--python": args.python,
        "--eager": args.eager,
    }
    given = [name for name, value in forms.items() if value]
    if len(given) > 1:
        raise CommandError(f"{' and '.join(given)} cannot be combined; give one of them")
    if bool(args.before) != bool(args.after):
        missing = "--after" if args.before else "--before"
        raise CommandError(f"{missing} is missing; give both commands: --before 'python a.py' --after 'python b.py'")
    for name, revisions in (("--rev", args.rev), ("--python", args.python)):
        if revisions and len(revisions) != 2:
            number = "once" if len(revisions) == 1 else f"{len(revisions)} times"
            raise CommandError(f"{name} is given {number}; give it twice, before and after the change")


def sides_of(
    args: argparse.Namespace, words: list[str], work: Path, worktrees: "object",
) -> "tuple[Side, Side]":
    from torchtriage.proof import sides

    if args.before:
        if words:
            raise CommandError(f"{words[0]} is left over; the commands in --before and --after are complete")
        return sides.command_sides(args.before, args.after, work)
    if args.rev:
        assert isinstance(worktrees, sides.Worktrees)
        return worktrees.sides(args.rev, words)
    if args.python or args.eager:
        if not words:
            raise CommandError("no script; name one: torchtriage verify --eager train.py")
        if args.python:
            return sides.python_sides(args.python, words[0], words[1:], work)
        return sides.eager_sides(words[0], words[1:], work)
    return sides.script_sides(words[0], words[1], words[2:], work)
