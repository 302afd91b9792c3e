#!/bin/bash
# Starts a cluster on this machine, for tests and benchmarks: Slurm's controller with the nodes node1, node2 and blind, and an SSH server with
# the host name far. Each node is a process namespace with its own host name, so that a test can cut it off as if its power failed.
# All files are in DIR, and all servers listen only on 127.0.0.1. The cluster stops at the end of the input, so it never outlives its caller.
# usage: cluster.sh DIR        needs root, Debian's slurm-wlm, slurm-client, munge, openssh-server; prints `ready`, or an error and exits
#   DIR/slurm.conf   for SLURM_CONF           DIR/ssh_config   for `ssh -F`: the host `far`
#   DIR/shared       visible to all nodes, except that `blind` sees an empty directory        DIR/small   a file system of 512 KiB, visible to all
# Reads commands, one per line, and answers each with `done`:   kill NODE   start NODE   (node1, node2, blind or far)
set -u
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
unset "${!SLURM_@}"
[ $# = 1 ] && mkdir -p "$1" && cd "$1" || exit 2
folder=$PWD
declare -A pids=()

# Prefix of child processes: the kernel kills them when this script dies.
with_us=(setpriv --pdeathsig KILL)
# Prefix of a node. Its first process dies with `unshare`, and all others die with the first.
machine=("${with_us[@]}" unshare --mount --pid --uts --fork --kill-child --mount-proc)

# shellcheck disable=SC2317  # a trap calls it
end() {
    trap '' TERM INT HUP
    # Hide bash's messages about killed processes.
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

# Whether a process listens on a port of this machine, according to the kernel's tables.
taken() { grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
ports() { # COUNT: prints the first of COUNT consecutive free ports, below the system's range of ephemeral ports
    local base at
    for _ in {1..50}; do
        base=$((RANDOM % 1200 * 10 + 16000))
        for ((at = base; at < base + $1; at++)); do taken "$at" && continue 2; done
        echo "$base"
        return
    done
}

# bash stays as the first process of the namespace, because orphaned processes need one that waits for them.
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
# No control groups: they belong to the machine and are often not accessible.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# In Debian 12's release, jobacct_gather/linux ends a step with a segmentation fault. Without it, there are no memory limits.
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/log/completed
MpiDefault=none
SelectType=select/cons_tres
# The nodes take turns.
SelectTypeParameters=CR_CPU_Memory,CR_LLN
SchedulerParameters=sched_min_interval=0
# The nodes have the configured number of CPUs, not the machine's.
SlurmdParameters=config_overrides
# Short timeouts, for fast tests.
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
# Accepts jobs but never starts them.
PartitionName=never Nodes=node1,node2 MaxTime=INFINITE State=DOWN
CONF
}

write_ssh() { # PORT
    local key
    for key in host_key key; do
        ssh-keygen -q -t ed25519 -N '' -f "$key" </dev/null || fail 'cannot create an SSH key (ssh-keygen)'
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

stepd=$(command -v slurmstepd-wlm || command -v slurmstepd) || fail 'slurmstepd not found (Debian package slurmd)'
for tool in munged slurmctld slurmd srun sshd ssh ssh-keygen setpriv unshare; do
    command -v "$tool" >/dev/null || fail "$tool not found (make setup-cluster)"
done
"${machine[@]}" true || fail 'cannot create namespaces (unshare --mount --pid --uts)'
# munged requires directories that all users may enter. --force also accepts others, such as one below a private directory.
chmod 755 .
mkdir -p munge node1 node2 blind state log shared small
chmod 755 munge
mount -t tmpfs -o size=512k none small || fail "cannot mount a file system on $PWD/small"
# sshd requires this directory, which the system creates at boot, if at all.
[ -d /run/sshd ] || { mkdir /run/sshd && made_run=1; }
port=$(ports 5)
[ -n "$port" ] || fail 'no 5 consecutive free ports found'
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
[ -S munge/socket ] || fail 'munged did not start'
"${with_us[@]}" unshare --uts --kill-child --fork bash -c 'hostname head && exec slurmctld -D -i' </dev/null >>log/slurmctld.out 2>&1 &
pids[slurmctld]=$!
for node in node1 node2 blind far; do start "$node"; done
for _ in {1..300}; do
    [ "$(sinfo -h -N -p both,blind -t idle -o %n 2>/dev/null | sort -u | wc -l)" = 3 ] && taken $((port + 4)) && ready=1 && break
    sleep 0.1
done
[ -n "${ready:-}" ] || fail 'the nodes are not ready after 30 s'
echo ready
while read -r verb node; do
    case $verb:$node in
        kill:node1 | kill:node2 | kill:blind | kill:far) cut "$node" ;;
        start:node1 | start:node2 | start:blind | start:far) start "$node" ;;
        *) echo "unknown command: $verb $node" ;;
    esac
    echo 'done'
done
exit 0
