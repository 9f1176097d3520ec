"""An observer of side effects that has ended ignores side effects, also at the process's end."""

import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from wharfinger.conformance.side_effects import watching_files

_ENDS = """
import sys
from wharfinger.conformance import side_effects

class Late:
    def __del__(self, audit=sys.audit):
        audit("os.mkdir", "/late", 0o777, -1)

with side_effects.watching():
    pass
# Modules that are still in use are cleared in the reverse order of their import.
sys.kept = [side_effects, sys.modules["__main__"]]
late = Late()
"""


def test_ended_observer_prints_nothing_when_the_process_ends() -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, check=True)

    assert done.stderr == ""


def test_watch_of_files_keeps_what_is_made_and_forgets_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "before").touch()
    with watching_files() as made:
        (tmp_path / "before").read_text()
        (tmp_path / "kept").mkdir()
        for number in range(1000):
            file = tmp_path / f"gone-{number}"
            file.touch()
            file.unlink()
        (tmp_path / "new").write_text("")
        (tmp_path / "new").rename(tmp_path / "renamed")
    (tmp_path / "after").touch()

    there = {name for name in made if Path(name).exists()}
    assert there == {str(tmp_path / "kept"), str(tmp_path / "renamed")}
    assert len(made) < 100


def test_watch_of_files_keeps_segments_of_shared_memory() -> None:
    with watching_files() as made:
        segment = SharedMemory(create=True, size=1)
    after = SharedMemory(create=True, size=1)
    for one in (segment, after):
        one.close()
        one.unlink()

    assert made == {f"/dev/shm/{segment.name}"}
