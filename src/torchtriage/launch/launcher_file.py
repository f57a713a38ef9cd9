"""The launcher's file in a recording, from the command that was started to its exit status.

The launcher alone loads this module. An observed process loads other modules of launch/, which import no recording.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from torchtriage.launch import environment
from torchtriage.launch.privacy import redacted
from torchtriage.recording.facts import LauncherFacts, to_dict
from torchtriage.recording.reader import LAUNCHER_FILE
from torchtriage.recording.store import Writer


def begin(folder: Path, run_id: str, command: Sequence[str]) -> Writer:
    """Claim a new folder for this run; raises OSError or sqlite3.Error if it cannot be written."""
    from torchtriage import __version__

    if not environment.claim(str(folder), run_id):
        raise FileExistsError(None, "another run has just begun to record into it")
    writer = Writer(folder / LAUNCHER_FILE)
    facts = LauncherFacts(
        run_id=run_id, argv=tuple(redacted(command)), cwd=os.getcwd(), start=time.time(), torchtriage=__version__)
    writer.put_facts(to_dict(facts))
    return writer


def end(writer: Writer, exit_status: int) -> None:
    """Write the end of the run; raises OSError or sqlite3.Error if it cannot be written."""
    writer.put_facts({"end": time.time(), "exit_status": exit_status})
    writer.close()
