#!/bin/sh
# The main job on a fresh machine. With a Docker Engine: in a container. Without: in place, with a torch in this
# environment. This file chooses for its own example only; the phantora command itself never falls back.
set -eu
gpus=${GPUS:-8}
if [ "${DEMO:-auto}" = sandbox ] || { [ "${DEMO:-auto}" = auto ] && docker version >/dev/null 2>&1; }; then
  echo "demo: phantora sandbox examples/llama_fsdp.py --gpus $gpus" >&2
  exec phantora sandbox examples/llama_fsdp.py --gpus "$gpus"
fi
echo "demo: no Docker Engine answers: phantora run examples/llama_fsdp.py --gpus $gpus" >&2
python phantora/sandbox/context/install_torch.py --torch "$TORCH"
exec phantora run examples/llama_fsdp.py --gpus "$gpus"
