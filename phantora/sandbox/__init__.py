"""`phantora sandbox`: the same run as `phantora run`, in a container.

check.py looks at the options, engine.py connects, limits.py says what a container may use of this machine, context.py
and image.py make the image, own_image.py takes the user's, mounts.py says what the container sees and workspace.py
where it may write, container.py runs it, jobs.py runs short ones of our own, stale.py removes what earlier launchers
left, launcher.py joins them. The Docker SDK is imported only when an Engine is needed.
"""

from __future__ import annotations

from phantora.options import RunOptions


def run(options: RunOptions) -> int:
    """Runs a script in a container. Returns the exit code.

    Raises:
        PhantoraError: The options, this machine or its Docker Engine do not allow it.
    """
    from phantora.sandbox import check, launcher

    check.check(options)
    return launcher.run(options)
