set -eu
umask 077
cd "$folder"
# A job that is requeued, or submitted again, goes on with what the attempts before it have learnt.
attempt=0
while [ -e "attempt-$attempt" ]; do attempt=$((attempt + 1)); done
mkdir "attempt-$attempt"
# When its time is nearly up, all peers leave with checkpoints, and the job is queued again.
is_late=
trap 'is_late=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} sh "$folder/$peer_script" "$attempt" &
step=$!
while :; do
    wait "$step" || true
    kill -0 "$step" 2> /dev/null || break
done
if [ -e finished ]; then exit 0; fi
if [ -n "$is_late" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit 1
