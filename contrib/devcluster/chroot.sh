#!/bin/sh
# Runs a program in a root folder that is being built, in namespaces of its own, so that no mount outlives it.
#   chroot.sh ROOT PROGRAM [ARGUMENT...]
set -eu
root=$1
shift
mount -t proc proc "$root/proc"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
exec chroot "$root" "$@"
