#!/usr/bin/env bash
# Public programs of several CUDA files, each file an object of ours or of ptxas's, linked by nvlink, and what comes of it held against
# their PTX as one: tools/consumers/separate.sh [WORK]. SAMPLES is a folder with NVIDIA's cuda-samples (cloned without); SM is the target.
. "$(dirname "$0")/common.sh"
toolkit
sm=${SM:-sm_90} bin=$(realpath "${OXPTXAS_ORACLES:-$root/target/oracles/nvidia/cu13/bin}")
if [ -z "${SAMPLES:-}" ]; then
    SAMPLES=$work/cuda-samples
    [ -d "$SAMPLES" ] || git clone --quiet --depth 1 https://github.com/NVIDIA/cuda-samples "$SAMPLES"
fi
programs=0 linked=0 verified=0 open=0
while read -r folder; do
    name=$(basename "$folder") modules=() n=0
    mkdir -p "$work/separate/$name"
    cd "$work/separate/$name"
    for file in "$folder"/*.cu; do
        if ! "$work/cuda/bin/nvcc" -arch="$sm" -rdc=true -ptx -I"$SAMPLES/Common" -I"$folder" "$file" -o "$(basename "$file" .cu).ptx" 2>nvcc.log; then
            # Needs what is not installed.
            modules=() && break
        fi
        modules+=("$(basename "$file" .cu)")
    done
    [ ${#modules[@]} -gt 1 ] || continue
    programs=$((programs + 1))
    for m in "${modules[@]}"; do
        "$OXPTXAS" -c -arch="$sm" "$m.ptx" -o "$m.ours.o"
        "$bin/ptxas" -c -arch="$sm" "$m.ptx" -o "$m.theirs.o"
    done
    with=() && for m in "${modules[@]:1}"; do with+=(--with "$m.ptx"); done
    for way in ours theirs ours-first theirs-first; do
        objects=() n=0
        for m in "${modules[@]}"; do
            case $way in ours | theirs) kind=$way ;; ours-first) [ $((n % 2)) = 0 ] && kind=ours || kind=theirs ;; *) [ $((n % 2)) = 1 ] && kind=ours || kind=theirs ;; esac
            objects+=("$m.$kind.o") n=$((n + 1))
        done
        # Programs that launch from the device need a library of NVIDIA's.
        "$bin/nvlink" -arch="$sm" "${objects[@]}" -o "$way.cubin" >nvlink.log 2>&1 || { cat nvlink.log && exit 1; }
        linked=$((linked + 1))
        if "$OXSASS" verify "${modules[0]}.ptx" "${with[@]}" --cubin "$way.cubin" >"$way.verdict" 2>&1; then
            verified=$((verified + 1))
        elif [ $way != ours ] && grep -q ': hazard: ' "$way.verdict" && ! grep -qE 'DIFFERS|: order: ' "$way.verdict"; then
            # In a few places of ptxas's code distances are shorter than what its other code keeps (docs/status.md).
            verified=$((verified + 1))
        elif grep -qE ': (no defined result|not simulated): ' "$way.verdict" && ! grep -qE 'DIFFERS|: hazard: |: order: ' "$way.verdict"; then
            open=$((open + 1))
        else
            echo "$name, $way:" && cat "$way.verdict" && exit 1
        fi
    done
done < <(find "$SAMPLES/Samples" -name '*.cu' ! -path '*cdp*' -printf '%h\n' | sort | uniq -d)
echo "$(basename "$0"): $programs programs, $linked files linked, $verified verified, $open with kernels that no launch says anything of"
[ $programs -ge 5 ]
