# From here on the same for every job (src/sys/launcher/job.sh). Above are: job, nonce, folder, program, listed, patience, run_it, look_at.
node=${SLURMD_NODENAME:-$(uname -n)}
if ! printf '%s %s\n' "$nonce" "$node" > "$job/began"; then
  echo "offld: $job cannot be written to on $node: is the disk full?" >&2
  exit 125
fi
# Whatever shells say of processes that were killed is not for the user.
exec 2>/dev/null

# Ends the job, which was not run, or whose end is not its own.
refuse() {
  printf '%s\nnode %s\nrefused %s\nend\n' "$nonce" "$node" "$1" > "$job/status.new" && mv -f "$job/status.new" "$job/status"
  exit 0
}

# Puts the processes below $1 and itself into $all.
below() {
  all=$1 next=$1
  while [ -n "$next" ]; do
    now=$next next=
    for pid in $now; do
      for list in "/proc/$pid/task/"*/children; do
        kids=
        { read -r kids < "$list"; } 2>/dev/null
        [ -z "$kids" ] || next="$next $kids"
      done
    done
    all="$all$next"
  done
}

# Ends the command with all that it has started, and what does not end within a second by force. Whoever sent a signal may have sent it
# to all of them: what is left of those that have ended already is in the list of the last look. Of a process that has ended and still has
# its number, there is no exe.
end_command() {
  trap '' HUP INT TERM
  below "$child"
  seen=''
  { read -r count peak seen < "$job/alive"; } 2>/dev/null
  all="$all $seen"
  kill -TERM $all
  for try in 1 2 3 4 5 6 7 8 9 10; do
    still=''
    for pid in $all; do
      [ ! -e "/proc/$pid/exe" ] || still="$still $pid"
    done
    [ -n "$still" ] || return
    sleep 0.1 || sleep 1
  done
  kill -KILL $still
}

# Ends the job when its lease is gone, or is not renewed any more. Tells that it runs, its peak of memory, and its processes.
watch() {
  cd /
  unchanged=0 last='' count=0 peak=0 shown=''
  while :; do
    lease=''
    { read -r lease < "$job/lease"; } 2>/dev/null || [ -e "$job/lease" ] || break
    if [ "$lease" = "$last" ]; then unchanged=$((unchanged + 1)); else last=$lease unchanged=0; fi
    [ "$unchanged" -lt "$patience" ] || { : > "$job/stale"; break; }
    below "$child"
    for pid in $all; do
      while read -r name value rest; do
        case $name in VmHWM:) [ "$value" -le "$peak" ] || peak=$value; break ;; esac
      done < "/proc/$pid/status"
    done
    count=$((count + 1))
    now="$((count / 5)) $peak $all"
    # In its place, so that it can be done when the disk is full.
    [ "$now" = "$shown" ] || { shown=$now; printf '%s\n' "$now" 1<> "$job/alive"; }
    if [ "$count" -lt 5 ]; then pause=0.05; else pause=0.2; fi
    sleep "$pause" || sleep 1
  done
  kill -TERM $$
}

child='' told=''
# Two signals may come at once.
trap '[ -n "$told" ] || { told=1; [ -z "$child" ] || end_command; }' HUP INT TERM
cd "$folder" || refuse "the folder $folder is not there"
[ -x "$program" ] || refuse "the program $program is not there"
run_it < /dev/null > "$job/stdout" 2> "$job/stderr" &
child=$!
watch < /dev/null > /dev/null 2>&1 &
watcher=$!
[ -z "$told" ] || end_command
wait "$child"
status=$?
while [ -n "$told" ] && kill -0 "$child"; do
  wait "$child"
  status=$?
done
trap '' HUP INT TERM
count='' peak=''
for try in 1 2 3; do
  { read -r count peak seen < "$job/alive"; } && break
done
kill -KILL "$watcher"
[ -e "$job/lease" ] || { : > "$job/ended"; exit 1; }
[ ! -e "$job/stale" ] || refuse "its lease was not renewed any more"

# What the files are here that the command depends on.
if [ "$status" -eq 0 ]; then
  set --
  if [ -s "$listed" ]; then
    sed -n '2,/^$/ { s/^  *//; s/ *\\$//; s/\\\([ #\\]\)/\1/g; s/\$\$/$/g; /./p; }' "$listed" > "$job/list"
    while IFS= read -r file; do set -- "$@" "$file"; done < "$job/list"
  fi
  look_at "$@" > "$job/files"
fi
{
  printf '%s\nnode %s\nstatus %s\ntold %s\npeak %s\n' "$nonce" "$node" "$status" "$told" "${peak:-0}"
  times
  echo end
} > "$job/status.new" && mv -f "$job/status.new" "$job/status" || exit 125
exit 0
