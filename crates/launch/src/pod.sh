# One peer of a swarm in a container. All are given one secret, and make the ticket from it and from the names of the others, so nobody has
# to hand a ticket round. The first starts the swarm, unless the others are there already; the others join it.
#
#   SWARM_SECRET   a file that holds the secret            SWARM_JOB     a folder with job.toml and the files that it names
#   SWARM_HOSTS    all peers, HOST:PORT, in their order    SWARM_RANK    which of them this is [the number behind the host's last dash]
#   SWARM_LISTEN   where to listen, ADDRESS:PORT           SWARM_THREADS its number of compute threads
#   SWARM_DATA     the data set to fetch, if any           SWARM_PATH    where the data is, if it has no name
#   SWARM_MODEL    FILE.py:FUNCTION, if it is of Python    SWARM_STAYS   not empty: wait at the end, so that the run can be fetched
set -eu
umask 077
rank=${SWARM_RANK:-${HOSTNAME##*-}}
n_peers=0
others=
for host in $SWARM_HOSTS; do
    if [ "$n_peers" != "$rank" ]; then others="$others --at $host"; fi
    n_peers=$((n_peers + 1))
done

# Whether one of the others answers; then there is a ticket in a file.
answers() {
    # The names are words without spaces.
    [ -n "$others" ] && nettorrent ticket --secret-file "$SWARM_SECRET" $others > ticket 2> /dev/null &&
        nettorrent status --ticket-file ticket > /dev/null 2>&1
}

waits() {
    trap 'exit 0' TERM INT
    while :; do
        sleep 3600 &
        wait $!
    done
}

if [ -e finished ]; then
    if [ -n "${SWARM_STAYS:-}" ]; then waits; fi
    exit 0
fi
# Models of Python are looked for beside the job, and the run may be resumed.
cp "$SWARM_JOB"/* .
if [ -n "${SWARM_DATA:-}" ]; then nettorrent data fetch "$SWARM_DATA"; fi
if [ "$rank" != 0 ]; then
    # Until it has joined, this is no peer whose swarm can be asked for.
    rm -rf run
    until answers; do sleep 2; done
    set -- join --ticket-file ticket --run run
elif [ -e run/job.toml ]; then
    # It joins the others if they still train.
    if answers; then cp ticket run/ticket; else rm -f run/ticket; fi
    set -- start --resume run --secret-file "$SWARM_SECRET" --wait-for "$n_peers"
elif answers; then
    set -- join --ticket-file ticket --run run
else
    set -- start job.toml --run run --secret-file "$SWARM_SECRET" --wait-for "$n_peers"
fi

if [ "$1" = join ]; then set -- "$@" ${SWARM_PATH:+--data "$SWARM_PATH"} ${SWARM_MODEL:+--model "$SWARM_MODEL"}; fi
# With --json it would print the ticket, which is not for logs; its events are in a file.
nettorrent "$@" --listen "$SWARM_LISTEN" --threads "$SWARM_THREADS" --json > /dev/null &
peer=$!
trap 'kill -TERM "$peer"' TERM INT
tail -n +1 -F run/events.jsonl 2> /dev/null &
events=$!
status=0
while :; do
    wait "$peer" && status=0 || status=$?
    kill -0 "$peer" 2> /dev/null || break
done
# What came last is still to be shown: it looks once a second.
sleep 1
kill "$events" 2> /dev/null || true
if [ "$status" = 0 ]; then
    : > finished
    if [ -n "${SWARM_STAYS:-}" ]; then waits; fi
fi
exit "$status"
