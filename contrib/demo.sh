#!/bin/bash
# The main job, for real: a Slurm of its own on this machine, where 5 of the 18 instances that a job needs exist and the
# others are still arriving. hyp-submit plans the job, holds it until the partition is ready, and submits it once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
devcluster=contrib/devcluster/devcluster
name=demo
script=/opt/hyp-submit/contrib/examples/megatron-moe.sbatch

bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
[[ -t 1 && -z "${NO_COLOR:-}" ]] || bold='' plain=''
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
inside() { "$devcluster" exec --name "$name" -- "$@"; }

"$devcluster" down --name "$name" 2>/dev/null || true
trap '"$devcluster" down --name "$name" >/dev/null 2>&1 || true' EXIT

say "A cluster whose instance group gb200-a is still Creating: 5 of its 18 instances are there."
"$devcluster" up --name "$name" --scenario mincount-met
inside sinfo --partition gb200

say "\$ hyp-submit plan contrib/examples/megatron-moe.sbatch"
inside hyp-submit plan "$script" || [[ $? == 4 ]]       # 4: not on the nodes that are there now

say "\$ JOB=\$(hyp-submit submit --poll 1s contrib/examples/megatron-moe.sbatch)"
job=$(inside hyp-submit submit --poll 1s "$script")
echo "JOB=$job"

until [[ "$(inside squeue --noheader --states=all --format=%T --job "$job")" =~ COMPLETED|FAILED|CANCELLED|TIMEOUT ]]; do
    sleep 0.5
done
say "What job $job wrote: its ranks, on 18 nodes of one block."
inside cat "megatron-moe-$job.out"
inside scontrol show job "$job" | sed -n 's/^ *\(JobState\|NodeList\|NumNodes\|SegmentSize\)=/    \1=/p'

blocks=$(inside awk 'NR > 1 { print $3 }' "megatron-moe-$job.out" | sort -u)
[[ "$blocks" == us-1 ]] || { echo "demo: the job is not in one block: $blocks" >&2; exit 1; }
say "Done. A cluster of your own:  $devcluster up  and  $devcluster exec -- hyp-submit tui"
