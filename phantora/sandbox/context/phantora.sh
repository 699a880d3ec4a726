#!/bin/sh
# The command line inside the image (compose.yaml): `phantora run` and what goes with it. Its own packages lie apart, so
# that scripts see none of them.
export PHANTORA_NATIVE=/opt/phantora/native PHANTORA_ADAPTOR=/opt/phantora/adaptor PYTHONDONTWRITEBYTECODE=1
export PATH="/opt/phantora/venv/bin:$PATH"
exec /opt/phantora/venv/bin/python -c '
import sys
sys.path[:0] = ["/opt/phantora/cli", "/opt/phantora/lib"]
from phantora.cli import main
main()' "$@"
