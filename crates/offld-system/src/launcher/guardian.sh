# Waits for the end of offld, the only process with the other end of its stdin. If offld has not sent `well` by then, ends the launched
# processes and removes the temporary files. $1: the lease; $2: the temporary directory, or nothing.
trap '' HUP INT QUIT TERM
# No `--` before a group: dash reads it as a process id.
group=''
while read -r word value; do
  case $word in
    group) group=$value ;;
    well) exit 0 ;;
  esac
done
rm -f -- "$1"
if [ -n "$group" ]; then
  kill -TERM "-$group"
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    kill -0 "-$group" || break
    sleep 0.1 || sleep 1
  done
  kill -KILL "-$group"
fi
# A job that still runs on another machine notices the missing lease, and then reports its end.
folder=${1%/*}
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  if [ ! -e "$folder/began" ] || [ -e "$folder/ended" ] || [ -e "$folder/status" ]; then break; fi
  sleep 0.1 || sleep 1
done
for try in 1 2 3 4 5 6; do
  [ -n "$2" ] && [ -e "$2" ] || break
  rm -rf -- "$2"
  sleep 0.5 || sleep 1
done
