# For the scripts of this folder, which source it: OXPTXAS and OXSASS name our programs (target/release without), $work is a folder for
# the script, given as its argument or a new one, and $work/bin/ptxas is a program that runs ours and keeps what went in and what came
# out. `verify_kept LEAST` compares all of that and fails unless there are so many files at least.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export OXPTXAS=${OXPTXAS:-$root/target/release/oxptxas} OXSASS=${OXSASS:-$root/target/release/oxsass}
for program in "$OXPTXAS" "$OXSASS"; do
    [ -x "$program" ] || { echo "$program is not there: cargo build --release, or set OXPTXAS and OXSASS" >&2 && exit 1; }
done
OXPTXAS=$(realpath "$OXPTXAS") OXSASS=$(realpath "$OXSASS")
work=${1:-$(mktemp -d "/tmp/oxptxas-consumer-XXXXXX")}
mkdir -p "$work/bin" "$work/kept"
work=$(realpath "$work")
export KEPT=$work/kept
cat >"$work/bin/ptxas" <<'PTXAS'
#!/usr/bin/env bash
(exec -a "$0" "$OXPTXAS" "$@") || exit
input= output= previous=
for word in "$@"; do
    case $previous in -o | --output-file) output=$word ;; esac
    case $word in --output-file=*) output=${word#*=} ;; -*) ;; *) [ -f "$word" ] && [ "$word" != "$output" ] && input=$word ;; esac
    previous=$word
done
if [ -n "$input" ] && [ -f "$output" ]; then
    # Not the file of options, nor an argument of an option that happens to be a file.
    grep -q '^[[:space:]]*\.version' "$input" || exit 0
    name=$(mktemp -u "$KEPT/XXXXXXXX")
    cp "$input" "$name.ptx"
    cp "$output" "$name.cubin"
    echo "$*" >"$name.command"
fi
exit 0
PTXAS
chmod +x "$work/bin/ptxas"

# NVIDIA's toolkit from the folder OXPTXAS_ORACLES (docs/oracles.md), or the one that nvcc on PATH belongs to, as links in a folder of
# its own, in which ptxas is ours.
toolkit() {
    local bin=${OXPTXAS_ORACLES:-$(dirname "$(command -v nvcc || echo "$root/target/oracles/nvidia/cu13/bin/nvcc")")} file
    bin=$(realpath "$bin")
    mkdir -p "$work/cuda/bin"
    for file in "$bin"/../*; do
        [ "$(basename "$file")" = bin ] || ln -sfn "$(realpath "$file")" "$work/cuda/$(basename "$file")"
    done
    # pip's packages have one folder of libraries, and nvcc looks into another.
    [ -e "$work/cuda/lib64" ] || ln -sfn lib "$work/cuda/lib64"
    for file in "$bin"/*; do ln -sfn "$file" "$work/cuda/bin/$(basename "$file")"; done
    ln -sfn "$work/bin/ptxas" "$work/cuda/bin/ptxas"
}

# Whether each executable that was kept does what its PTX says. Of some nothing is known, as no launch can be made up for them; objects are
# counted: what they do is known once they are linked.
verify_kept() {
    local file name objects=0 verified=0 open=0
    for file in "$KEPT"/*.ptx; do
        [ -e "$file" ] || break
        name=${file%.ptx}
        # e_type: 1 is an object, 0xff00 one of -ewp, which the driver or nvlink finishes.
        if [[ $(od -An -tu2 -j16 -N2 "$name.cubin" | tr -d ' ') =~ ^(1|65280)$ ]]; then
            objects=$((objects + 1))
        elif "$OXSASS" verify "$file" --cubin "$name.cubin" >"$name.verdict" 2>&1; then
            verified=$((verified + 1))
        elif grep -qE ': (no defined result|not simulated): ' "$name.verdict" && ! grep -qE 'DIFFERS|: hazard: |: order: ' "$name.verdict"; then
            open=$((open + 1))
        else
            echo "$file: $(cat "$name.command")" && cat "$name.verdict" && return 1
        fi
    done
    echo "$(basename "$0"): $verified cubins verified, $open without a launch that says anything, $objects objects"
    [ $((verified + open + objects)) -ge "$1" ]
}
