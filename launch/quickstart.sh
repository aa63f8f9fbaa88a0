#!/bin/sh
# From a fresh Debian 12 machine to generated text: packages, build, pack, index, pipeline, answer.
# Everything that was started is stopped again at the end.
#
#   launch/quickstart.sh [--model DIR] [--prompt TEXT] [--gen N] [--pack]
#
# --model DIR    another checkpoint (default: the small demo model in launch/demo-model)
# --prompt TEXT  the question (default: "What does happy mean?")
# --gen N        at most N tokens (default: 64)
# --pack         also pack the trunk of --model DIR: for the released model that writes up to 109 GB
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
demo="$root/launch/demo-model"
model=$demo
prompt="What does happy mean?"
gen=64
pack=no
usage() { sed -n '5,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --model) [ $# -ge 2 ] || usage; model=$2; shift 2 ;;
    --prompt) [ $# -ge 2 ] || usage; prompt=$2; shift 2 ;;
    --gen) [ $# -ge 2 ] || usage; gen=$2; shift 2 ;;
    --pack) pack=yes; shift ;;
    *) usage ;;
  esac
done
[ "$model" = "$demo" ] && pack=yes

if [ ! -e "$model/tiktoken.model" ]; then
  echo "quickstart: $model has no tiktoken.model, so no text; use k3 run --ids" >&2
  exit 2
fi
"$root/launch/install-packages.sh"
echo "quickstart: building"
(cd "$root" && cmake --preset release >/dev/null && cmake --build --preset release --target binaries)
bin="$root/build/release/bin"

work=$(mktemp -d "${XDG_RUNTIME_DIR:-/tmp}/k3-quickstart.XXXXXX")
run="$work/run"
cleanup() {
  [ ! -d "$run" ] || "$root/launch/k3-pipeline" stop --run "$run"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

if [ "$model" = "$demo" ]; then
  echo "quickstart: the demo model is tiny: it knows little and invents much (launch/demo-model/README.md)"
fi
trunk=""
if [ "$pack" = yes ]; then
  trunk="$work/trunk"
  [ "$model" = "$demo" ] || trunk="$model/.k3"
  "$bin/k3" pack --model "$model" --out "$trunk"
fi
"$bin/k3" index --model "$model" --work "$work"
"$root/launch/k3-pipeline" start --run "$run" --wait \
  --set "model=$model" --set "work=$work" --set "trunk=$trunk"
"$bin/k3" run --model "$model" --pipeline "$run" --chat "$prompt" --gen "$gen"
