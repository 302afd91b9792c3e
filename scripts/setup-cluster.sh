#!/usr/bin/env bash
# What the tests on a cluster need: Slurm and an SSH server, which the tests start for themselves. No service is started or enabled.
# usage: setup-cluster.sh [STAMP]
set -eu
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$(dirname "$0")/packages.sh"

# Its parts by name, because what enables their services goes by the name of each.
install_servers munge slurmctld slurmd slurm-wlm slurm-client openssh-server openssh-client
for tool in munged slurmctld slurmd srun sshd ssh; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || shortfall "there is no $tool"
done
# Namespaces and a file system are needed as well.
[ "$(id -u)" = 0 ] || say 'the tests on a cluster are for root, who may make namespaces and mount'
finish "${1:-}"
