#!/usr/bin/env bash
# Installs the packages for the cluster tests: Slurm and an SSH server. The tests start them; no service is started or enabled here.
# usage: setup-cluster.sh [STAMP]
set -eu
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$(dirname "$0")/packages.sh"

# Each part by name, because install_servers disables services by package name.
install_servers munge slurmctld slurmd slurm-wlm slurm-client openssh-server openssh-client
for tool in munged slurmctld slurmd srun sshd ssh; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || shortfall "$tool not found"
done
# The tests create namespaces and mount a file system.
[ "$(id -u)" = 0 ] || say 'the cluster tests must run as root, because they create namespaces and mount file systems'
finish "${1:-}"
