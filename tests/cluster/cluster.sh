#!/bin/bash
# A cluster on this machine, for tests and benchmarks: Slurm's controller with the nodes node1, node2 and blind, and an SSH server whose host is
# called far. Each node is a process namespace with a host name of its own, so that a node can be cut off like a machine whose power fails.
# Everything is in FOLDER, listens on 127.0.0.1 alone, and ends with the end of the input: nothing of it outlives who started it.
# usage: cluster.sh FOLDER        needs root, Debian's slurm-wlm, slurm-client, munge, openssh-server; prints `ready`, or why not and ends
#   FOLDER/slurm.conf   for SLURM_CONF           FOLDER/ssh_config   for `ssh -F`: the host `far`
#   FOLDER/shared       seen by all, but node `blind` sees an empty folder in its place        FOLDER/small   a file system of 512 KiB, seen by all
# Reads commands, a line each, and answers each with `done`:   kill NODE   start NODE   (node1, node2, blind or far)
set -u
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
unset "${!SLURM_@}"
[ $# = 1 ] && mkdir -p "$1" && cd "$1" || exit 2
folder=$PWD
declare -A pids=()

# What a child of ours is started with: it is killed when we are, however that happens.
with_us=(setpriv --pdeathsig KILL)
# A machine of its own. Its first process is killed with `unshare`, and all others with their first.
machine=("${with_us[@]}" unshare --mount --pid --uts --fork --kill-child --mount-proc)

# shellcheck disable=SC2317  # a trap calls it
end() {
    trap '' TERM INT HUP
    # What bash says of processes that it has killed is no news.
    exec 2>/dev/null
    for name in "${!pids[@]}"; do kill -KILL "${pids[$name]}"; done
    wait
    mountpoint -q small && umount -l small
    [ -z "${made_run:-}" ] || rmdir /run/sshd
    cd / && rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' TERM INT HUP
fail() {
    echo "cluster: $*"
    tail -n 5 log/* 2>/dev/null
    exit 1
}

# Whether anybody listens on a port of this machine, as the kernel's tables say.
taken() { grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
ports() { # COUNT: the first of so many free ones in a row, below those that the system gives to whoever asks for any
    local base at
    for _ in {1..50}; do
        base=$((RANDOM % 1200 * 10 + 16000))
        for ((at = base; at < base + $1; at++)); do taken "$at" && continue 2; done
        echo "$base"
        return
    done
}

# The shell stays: a first process that waits for those whose parents are gone.
start() { # NODE
    case $1 in
        far) "${machine[@]}" bash -c 'hostname far && /usr/sbin/sshd -D -e -f sshd_config; exit' ;;
        blind) "${machine[@]}" bash -c "mount -t tmpfs none shared && hostname blind && slurmd -D -N blind -d $stepd; exit" ;;
        *) "${machine[@]}" bash -c "hostname $1 && slurmd -D -N $1 -d $stepd; exit" ;;
    esac </dev/null >>"log/$1.out" 2>&1 &
    pids[$1]=$!
}
cut() { # NODE
    kill -KILL "${pids[$1]}" 2>/dev/null
    wait "${pids[$1]}" 2>/dev/null
    unset "pids[$1]"
}

write_slurm_conf() { # FIRST-PORT
    cat > slurm.conf <<CONF
ClusterName=offld
SlurmctldHost=head(127.0.0.1)
SlurmctldPort=$1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge/socket
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld
StateSaveLocation=$folder/state
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmdLogFile=$folder/log/%n
SlurmdSpoolDir=$folder/%n
# No control groups: these are the machine's, and often closed to us.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# What gathers by /proc ends the step of Debian 12's release by a segmentation fault, so no memory limit is kept here.
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/completed
MpiDefault=none
SelectType=select/cons_tres
# The nodes take turns.
SelectTypeParameters=CR_CPU_Memory,CR_LLN
SchedulerParameters=sched_min_interval=0
# The nodes have as many processors as we say.
SlurmdParameters=config_overrides
# Times of a cluster in a hurry.
SlurmdTimeout=5
SlurmctldTimeout=10
MessageTimeout=10
KillWait=1
MinJobAge=2
ReturnToService=2
PropagateResourceLimits=NONE
NodeName=node1 NodeAddr=127.0.0.1 Port=$(($1 + 1)) CPUs=8 RealMemory=8000
NodeName=node2 NodeAddr=127.0.0.1 Port=$(($1 + 2)) CPUs=8 RealMemory=8000
NodeName=blind NodeAddr=127.0.0.1 Port=$(($1 + 3)) CPUs=8 RealMemory=8000
PartitionName=both Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
PartitionName=first Nodes=node1 MaxTime=INFINITE State=UP
PartitionName=blind Nodes=blind MaxTime=INFINITE State=UP
# Takes jobs and starts none of them.
PartitionName=never Nodes=node1,node2 MaxTime=INFINITE State=DOWN
CONF
}

write_ssh() { # PORT
    local key
    for key in host_key key; do
        ssh-keygen -q -t ed25519 -N '' -f "$key" </dev/null || fail 'no SSH key can be made'
    done
    cp key.pub authorized_keys
    echo "[127.0.0.1]:$1 $(cut_comment host_key.pub)" > known_hosts
    cat > sshd_config <<CONF
Port $1
ListenAddress 127.0.0.1
HostKey $folder/host_key
PidFile none
AuthorizedKeysFile $folder/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
MaxStartups 100
CONF
    cat > ssh_config <<CONF
Host far
    HostName 127.0.0.1
    Port $1
    User $(id -un)
    IdentityFile $folder/key
    IdentitiesOnly yes
    UserKnownHostsFile $folder/known_hosts
    BatchMode yes
    LogLevel ERROR
CONF
}
cut_comment() { sed -n 's/^\([^ ]* [^ ]*\).*/\1/p' "$1"; }

stepd=$(command -v slurmstepd-wlm || command -v slurmstepd) || fail 'no slurmstepd here (Debian package slurmd)'
for tool in munged slurmctld slurmd srun sshd ssh ssh-keygen setpriv unshare; do
    command -v "$tool" >/dev/null || fail "no $tool here"
done
"${machine[@]}" true || fail 'no namespaces can be made (unshare --mount --pid --uts)'
# munged wants folders that all may enter; with --force it takes others, too, such as one below a folder of our own.
chmod 755 .
mkdir -p munge node1 node2 blind state log shared small
chmod 755 munge
mount -t tmpfs -o size=512k none small || fail 'no file system can be mounted'
# The server wants this folder, which the system's start makes where there is one.
[ -d /run/sshd ] || { mkdir /run/sshd && made_run=1; }
port=$(ports 5)
[ -n "$port" ] || fail 'no free ports'
write_slurm_conf "$port"
write_ssh $((port + 4))
export SLURM_CONF=$folder/slurm.conf
(umask 077 && head -c 1024 /dev/urandom > munge/key)
"${with_us[@]}" munged --foreground --force --key-file="$PWD/munge/key" --socket="$PWD/munge/socket" --pid-file="$PWD/munge/pid" \
    --log-file="$PWD/munge/log" --seed-file="$PWD/munge/seed" --num-threads=2 </dev/null >>log/munged 2>&1 &
pids[munged]=$!
for _ in {1..100}; do
    [ -S munge/socket ] && break
    sleep 0.05
done
[ -S munge/socket ] || fail 'munged does not start'
"${with_us[@]}" unshare --uts --kill-child --fork bash -c 'hostname head && exec slurmctld -D -i' </dev/null >>log/slurmctld.out 2>&1 &
pids[slurmctld]=$!
for node in node1 node2 blind far; do start "$node"; done
for _ in {1..300}; do
    [ "$(sinfo -h -N -p both,blind -t idle -o %n 2>/dev/null | sort -u | wc -l)" = 3 ] && taken $((port + 4)) && ready=1 && break
    sleep 0.1
done
[ -n "${ready:-}" ] || fail 'the nodes are not ready'
echo ready
while read -r verb node; do
    case $verb:$node in
        kill:node1 | kill:node2 | kill:blind | kill:far) cut "$node" ;;
        start:node1 | start:node2 | start:blind | start:far) start "$node" ;;
        *) echo "unknown: $verb $node" ;;
    esac
    echo 'done'
done
exit 0
