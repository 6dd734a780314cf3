# Arguments: grace, interval, timeout, failures, time to end, the check, the program. A signal for
# the task reaches its whole process group, so the script does not pass it on.
grace=$1 interval=$2 limit=$3 failures=$4 ending=$5 check=$6
shift 6
is_sick=0
"$@" &
main=$!
trap : TERM INT HUP
trap 'is_sick=1
  kill -TERM "$main" 2>/dev/null
  { sleep "$ending"; kill -KILL "$main" 2>/dev/null; } >/dev/null 2>&1 &' USR1
passes() {
  if command -v timeout >/dev/null 2>&1; then
    timeout -s KILL "$limit" /bin/sh -c "$check"
    return
  fi
  /bin/sh -c "$check" &
  pid=$!
  { sleep "$limit"; kill -KILL "$pid" 2>/dev/null; } &
  clock=$!
  wait "$pid"
  code=$?
  kill "$clock" 2>/dev/null
  return "$code"
}
watch() {
  trap - USR1
  began=$(date +%s) misses=0 has_passed=0
  while sleep "$interval"; do
    if passes; then
      has_passed=1 misses=0
    elif [ "$has_passed" = 1 ] || [ $(($(date +%s) - began)) -gt "$grace" ]; then
      misses=$((misses + 1))
    fi
    if [ "$misses" -ge "$failures" ]; then
      kill -USR1 $$
      return
    fi
  done
}
watch </dev/null >/dev/null 2>&1 &
watcher=$!
while :; do
  wait "$main"
  code=$?
  kill -0 "$main" 2>/dev/null || break
done
kill "$watcher" 2>/dev/null
[ "$is_sick" = 0 ] || exit 113
exit "$code"
