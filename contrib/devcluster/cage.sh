#!/bin/sh
# Runs as the first process of new mount, UTS, network, IPC and PID namespaces: turns the root folder into their /,
# read-only below and a tmpfs above, and becomes PID 1's program. Nothing here is visible outside.
#   cage.sh ROOT WORK REPO HOSTNAME INPUTS PROGRAM [ARGUMENT...]
# ROOT: root folder. WORK: an empty folder to mount on. REPO: goes to /opt/hyp-submit, read-only.
# INPUTS: a folder whose files are copied to /etc/devcluster.
set -eu
root=$1 work=$2 repo=$3 host=$4 inputs=$5
shift 5

# /proc is still the outer one: tells the pid that this process has outside.
read -r pid rest </proc/self/stat
echo "pid $pid"

hostname "$host"
mount -t tmpfs -o mode=755 devcluster "$work"
mkdir "$work/upper" "$work/scratch" "$work/tree"
cd "$root" # so that no character of its path can be taken for syntax of the option
mount -t overlay -o "lowerdir=.,upperdir=$work/upper,workdir=$work/scratch" devcluster "$work/tree"
cp -R "$inputs" "$work/tree/etc/devcluster"
mkdir -p "$work/tree/opt/hyp-submit"
mount --bind "$repo" "$work/tree/opt/hyp-submit"
mount -o remount,bind,ro "$work/tree/opt/hyp-submit"

cd "$work/tree"
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 dev dev
for device in null zero full random urandom tty; do
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr

# The old root ends up on top of the new one at /, from where the second step takes it away.
pivot_root . .
umount -l .
cd /
exec "$@"
