"""Found first on PYTHONPATH by every Python program of a run: makes the runtime importable, prepares child processes.

This folder holds nothing else, so that a user's module can never be hidden by one of ours. A sitecustomize that the
user has is run afterwards.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load_runtime() -> None:
    """Imports phantora_runtime from its own folder, without putting that folder's parent on sys.path."""
    if "phantora_runtime" in sys.modules:
        return
    package = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "phantora_runtime", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["phantora_runtime"] = module
    spec.loader.exec_module(module)


def _chain() -> None:
    """Runs the user's own sitecustomize, if there is one further down the path."""
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_load_runtime()
if "PHANTORA_RANK" in os.environ and "PHANTORA_SEGMENT" in os.environ:
    from phantora_runtime import child

    child.prepare()
_chain()
