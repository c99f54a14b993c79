#!/bin/busybox sh
# First process of the guest: devices, the machine's files, rxe0, then the job. Reports on the control port:
# "up", "note TEXT", "fail TEXT", "exit STATUS". The kernel's messages and this script's own go to the console, with
# each step of it before it is made: where a machine that does not come up stands.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /low /rw /host
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
step() {
  read -r uptime rest </proc/uptime
  echo "guest: $uptime s: $*"
}
load() {
  for module in "$@"; do
    insmod "$module" || echo "guest: $module not loaded"
  done
}
step "modules"
load /modules/a-*
load /modules/b-* &
network=$!

# A port's name reaches sysfs a moment after the driver binds.
port() {
  while :; do
    for entry in /sys/class/virtio-ports/*; do
      if [ "$(cat "$entry/name" 2>/dev/null)" = "$1" ]; then
        echo "/dev/${entry##*/}"
        return
      fi
    done
    usleep 10000
  done
}
step "control port"
exec 9>"$(port portolan.control)"

finish() {
  echo "$*" >&9
  poweroff -f
  sleep 60
}

step "the machine's files"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose host /low || finish "fail cannot mount the machine's files over 9p"
mount -t tmpfs tmpfs /rw
mkdir -p /rw/upper /rw/work
if ! mount -t overlay -o lowerdir=/low,upperdir=/rw/upper,workdir=/rw/work overlay /host; then
  echo "note no overlay over 9p: only /tmp, /var/tmp, /mnt and /run are writable" >&9
  mount --move /low /host
  for d in tmp var/tmp mnt; do mount -t tmpfs tmpfs "/host/$d"; done
fi
for d in proc sys dev; do mount --bind "/$d" "/host/$d"; done
mkdir -p /host/dev/shm /host/dev/pts
mount -t tmpfs tmpfs /host/dev/shm
mount -t devpts devpts /host/dev/pts
mount -t tmpfs tmpfs /host/run
[ -e /host/dev/fd ] || ln -s /proc/self/fd /host/dev/fd
[ -e /host/dev/stdin ] || ln -s /proc/self/fd/0 /host/dev/stdin
[ -e /host/dev/stdout ] || ln -s /proc/self/fd/1 /host/dev/stdout
[ -e /host/dev/stderr ] || ln -s /proc/self/fd/2 /host/dev/stderr

# Which machine this is, and of how many.
number=0
hosts=1
for word in $(cat /proc/cmdline); do
  case "$word" in
    portolan.host=*) number=${word#*=} ;;
    portolan.hosts=*) hosts=${word#*=} ;;
  esac
done
address=10.9.0.$((number + 1))
if [ "$hosts" = 1 ]; then
  name=portolan-guest
  echo "$address $name" >>/host/etc/hosts 2>/dev/null
else
  name=host$number
  i=0
  while [ "$i" -lt "$hosts" ]; do
    echo "10.9.0.$((i + 1)) host$i" >>/host/etc/hosts 2>/dev/null
    i=$((i + 1))
  done
fi
hostname "$name"
ulimit -l unlimited
step "network modules"
wait $network
step "rxe0"
ip link set lo up
if [ "$hosts" = 1 ]; then
  ip link add d0 type dummy || finish "fail cannot make the dummy interface d0"
else
  ip link set eth0 name d0 || finish "fail there is no interface for the wire to the other host"
fi
ip link set d0 mtu 4200
ip addr add "$address/24" dev d0
ip link set d0 up
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot /host rdma link add rxe0 type rxe netdev d0 || finish "fail cannot add rxe0 on d0"

mkdir -p /host/run/portolan-guest
cp /job /host/run/portolan-guest/job
if [ "$hosts" != 1 ]; then
  cp /bin/busybox /host/run/portolan-guest/busybox
  # Runs the words after the host's name there. Hydra gives it all words of a command in one line of the shell.
  cat >/host/run/portolan-guest/rsh <<'END'
#!/bin/sh
host=$1
shift
printf '%s\n' "$*" | /run/portolan-guest/busybox nc "$host" 514
END
  chmod 755 /host/run/portolan-guest/rsh
  i=0
  while [ "$i" -lt "$hosts" ]; do
    echo "host$i" >>/host/run/portolan-guest/hosts
    i=$((i + 1))
  done
  if [ "$number" != 0 ]; then
    echo "up" >&9
    exec nc -ll -p 514 -e env -i /bin/chroot /host /bin/sh /run/portolan-guest/job 9>&-
  fi
  step "host1"
  tries=0
  while [ "$(echo 'echo here' | timeout 10 nc -w 5 10.9.0.2 514 2>/dev/null)" != here ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || finish "fail host1 does not answer"
    usleep 200000
  done
fi
step "output ports"
mkfifo /out /err
# No open may wait for the other end: this process is told of every orphan that ends, which interrupts it. For both ways it
# does not wait, and then both ends are there.
exec 3<>/out 4<>/err
exec 5</out 6</err 7>/out 8>/err
exec 3>&- 4>&-
cat <&5 >"$(port portolan.stdout)" 6<&- 7>&- 8>&- &
out=$!
cat <&6 >"$(port portolan.stderr)" 5<&- 7>&- 8>&- &
err=$!
exec 5<&- 6<&-
echo "up" >&9
env -i /bin/chroot /host /bin/sh /run/portolan-guest/job </dev/null >&7 2>&8 7>&- 8>&- 9>&-
status=$?
exec 7>&- 8>&-
# Whatever the job left running holds the two pipes open: end it, so that the copies end.
for process in /proc/[0-9]*; do
  if [ "$(readlink "$process/root" 2>/dev/null)" = /host ]; then
    kill -9 "${process#/proc/}" 2>/dev/null
  fi
done
wait $out $err
finish "exit $status"
