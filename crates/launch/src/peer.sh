# One peer of a swarm whose peers share this folder. The first starts the swarm; the others join with the ticket that they find in its
# run, which only this user can read. It is given the number of the attempt, and defined before: folder, n_peers, threads, starts, joins.
set -eu
umask 077
cd "$folder"
attempt=$1
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-}}}}
if [ -z "$rank" ]; then
    echo "nothing says which peer this is: neither OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK nor SLURM_PROCID is set" >&2
    exit 1
fi
all=attempt-$attempt
me=$all/peer-$rank
mkdir -p "$all"
if [ -n "${SLURM_CPUS_PER_TASK:-}" ] && [ -z "$threads" ]; then threads=$SLURM_CPUS_PER_TASK; fi

# How it ended is told by a file: a peer that fails must not end the others, as some would have it who look at its status.
ends() {
    echo "$1" > "$me.status.part"
    mv "$me.status.part" "$me.status"
    if [ "$1" = 0 ]; then : > finished; fi
    exit 0
}

# Brings what an earlier attempt has learnt into the run of this one; whether there was anything.
takes_over() {
    newest=$(for path in attempt-*/peer-*/checkpoints/step-*; do
        if [ -d "$path" ]; then echo "${path##*/} ${path%/checkpoints/*}"; fi
    done | sort | tail -n 1)
    from=${newest#* }
    if [ -z "$newest" ]; then return 1; fi
    mkdir -p "$me/checkpoints"
    # Who was cut off may still be there and remove the oldest; what is not whole is found out and left.
    cp -R "$from"/checkpoints/step-* "$me/checkpoints/" || true
    for name in job.toml model.toml tokenizer.json; do
        if [ -e "$from/$name" ]; then cp "$from/$name" "$me/"; fi
    done
}

if [ -e finished ]; then exit 0; fi
set -- --json ${threads:+--threads "$threads"}
if [ "$rank" = 0 ]; then
    if takes_over; then set -- --resume "$me" "$@"; else set -- job.toml --run "$me" "$@"; fi
    starts --wait-for "$n_peers" "$@" > /dev/null 2> "$me.log" &
else
    until [ -s "$all/peer-0/ticket" ]; do
        if [ -e "$all/peer-0.status" ]; then
            echo "the first peer has ended before it had a ticket; its $all/peer-0.log says why" > "$me.log"
            ends 1
        fi
        sleep 1
    done
    joins --ticket-file "$all/peer-0/ticket" --run "$me" "$@" > /dev/null 2> "$me.log" &
fi
peer=$!

# Whoever ends a job signals all of its processes: the peer leaves then, and this waits for it. A second signal would end it at once.
trap : TERM INT
while sleep 1; do
    if [ -e leave ] || [ -e "attempt-$((attempt + 1))" ]; then
        kill -TERM "$peer" || true
        break
    fi
done &
watch=$!
status=0
while :; do
    wait "$peer" && status=0 || status=$?
    kill -0 "$peer" 2> /dev/null || break
done
kill "$watch" 2> /dev/null || true
ends "$status"
