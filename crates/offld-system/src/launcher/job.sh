# Runs the command of a job, renews its signs of life and writes its status. This part is the same for every job
# (job.sh). The part above sets `job`, `nonce`, `folder`, `program`, `listed`, `patience`, `run_it` and `look_at`.
node=${SLURMD_NODENAME:-$(uname -n)}
if ! printf '%s %s\n' "$nonce" "$node" > "$job/began"; then
  echo "offld: cannot write to $job on $node: is the disk full?" >&2
  exit 125
fi
# Hides shell messages about killed processes from the user.
exec 2>/dev/null

# Reports that the command was not run, or did not finish.
refuse() {
  printf '%s\nnode %s\nrefused %s\nend\n' "$nonce" "$node" "$1" > "$job/status.new" && mv -f "$job/status.new" "$job/status"
  exit 0
}

# Sets $all to $1 and all of its descendants.
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

# Ends the command and its descendants, and kills those that do not end within a second. If a signal was sent to all of them, some parents
# may have ended already; the previous list in $job/alive still has their descendants. A process that has ended but still has its id has
# no exe.
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

# Ends the job if its lease is removed or no longer renewed. Reports signs of life, peak memory and processes.
watch() {
  cd /
  unchanged=0 last='' count=0 peak=0 reported=''
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
    # Overwritten in place, which works on a full disk.
    [ "$now" = "$reported" ] || { reported=$now; printf '%s\n' "$now" 1<> "$job/alive"; }
    if [ "$count" -lt 5 ]; then pause=0.05; else pause=0.2; fi
    sleep "$pause" || sleep 1
  done
  kill -TERM $$
}

child='' signalled=''
# Two signals may arrive at once.
trap '[ -n "$signalled" ] || { signalled=1; [ -z "$child" ] || end_command; }' HUP INT TERM
cd "$folder" || refuse "the directory $folder does not exist"
[ -x "$program" ] || refuse "the program $program does not exist"
run_it < /dev/null > "$job/stdout" 2> "$job/stderr" &
child=$!
watch < /dev/null > /dev/null 2>&1 &
watcher=$!
[ -z "$signalled" ] || end_command
wait "$child"
status=$?
while [ -n "$signalled" ] && kill -0 "$child"; do
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
[ ! -e "$job/stale" ] || refuse "the lease of the job was not renewed"

# Reports the files on this machine that the command depends on.
if [ "$status" -eq 0 ]; then
  set --
  if [ -s "$listed" ]; then
    sed -n '2,/^$/ { s/^  *//; s/ *\\$//; s/\\\([ #\\]\)/\1/g; s/\$\$/$/g; /./p; }' "$listed" > "$job/list"
    while IFS= read -r file; do set -- "$@" "$file"; done < "$job/list"
  fi
  look_at "$@" > "$job/files"
fi
{
  printf '%s\nnode %s\nstatus %s\ntold %s\npeak %s\n' "$nonce" "$node" "$status" "$signalled" "${peak:-0}"
  times
  echo end
} > "$job/status.new" && mv -f "$job/status.new" "$job/status" || exit 125
exit 0
