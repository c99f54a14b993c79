#!/bin/sh
# try.sh FORM PACKAGE: installs a package, uses what it brought, and takes it away again. It runs as root in a root of its own.
set -eu
form=$1 package=$2
case $form in
tar)
	mkdir -p "/opt/some where"
	tar -xzf "$package" -C "/opt/some where"
	cd "/opt/some where"/portolan-*
	prefix=$PWD lib=$PWD/lib
	;;
deb)
	dpkg -i "$package"
	prefix=/usr lib=$(dirname "$(dpkg -L portolan | grep '/libportals3.so$')")
	;;
rpm)
	rpm --nodeps -i "$package"
	prefix=/usr lib=/usr/lib64
	;;
wheel)
	python3 -m venv /opt/venv
	/opt/venv/bin/pip install --quiet --no-index "$package"
	prefix=/opt/venv lib=/opt/venv/lib
	;;
esac
PATH=$prefix/bin:$PATH
export PATH
say() { echo "try: $form: $*"; }
say "$(portolan --version)"
portolan info >/dev/null
test -e "$lib/libfabric/libportolan-fi.so"
test -s "$prefix/share/doc/portolan/THIRD-PARTY"
portolan run -n 2 --fabric shm -- gups
portolan run -n 2 --fabric seastar -- gups
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
	cat >/tmp/first.c <<'C'
#include <portals3.h>
#include <p3rt/p3rt.h>
#include <stdio.h>
#include <time.h>
int main(int argc, char **argv) {
  struct timespec now;
  ptl_handle_ni_t ni;
  unsigned rank = 0, size = 0;
  int most;
  if (PtlInit(&most) != PTL_OK || PtlNIInit(PTL_IFACE_DEFAULT, PTL_PID_ANY, NULL, NULL, &ni) != PTL_OK)
    return 1;
  if (PtlGetRank(ni, &rank, &size) != PTL_OK)
    return 1;
  if (argc < 2)
    printf("rank %u of %u\n", rank, size);
  else if (rank == 0 && !clock_gettime(CLOCK_MONOTONIC, &now))
    printf("rank %u at .%09ld\n", rank, now.tv_nsec);
  (void)argv;
  return size != 2;
}
C
	PKG_CONFIG_PATH=$lib/pkgconfig
	export PKG_CONFIG_PATH
	eval "cc /tmp/first.c -o /tmp/first $(pkg-config --cflags --libs portals3)"
	portolan run -n 2 --fabric shm -- /tmp/first
	# In virtual time two runs begin at another second, and go on from there by the same nanoseconds.
	at_the_same_time() { portolan run -n 2 --fabric seastar --clock virtual -- /tmp/first clock >/tmp/clock; }
	case $prefix in
	*' '*) if at_the_same_time; then exit 1; fi ;;
	*)
		at_the_same_time
		once=$(sed 's/.*[.]//' /tmp/clock)
		at_the_same_time
		test "$once" = "$(sed 's/.*[.]//' /tmp/clock)"
		say "virtual clocks: $once"
		;;
	esac
	rm /tmp/clock
	# An RPM is for systems whose CMake and loader look in lib64, which Debian's do not.
	if command -v cmake >/dev/null && { test "$form" != rpm || ! command -v dpkg >/dev/null; }; then
		mkdir -p /tmp/by-cmake
		cat >/tmp/by-cmake/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(first C)
find_package(portolan REQUIRED)
add_executable(first /tmp/first.c)
target_link_libraries(first portolan::portals3)
CMAKE
		cmake -S /tmp/by-cmake -B /tmp/by-cmake/build -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
		cmake --build /tmp/by-cmake/build >/dev/null
		portolan run -n 2 --fabric shm -- /tmp/by-cmake/build/first
		rm -r /tmp/by-cmake
	fi
	rm /tmp/first /tmp/first.c
else
	say "no C compiler and pkg-config here: no program was compiled"
fi
case $form in
tar) rm -r "/opt/some where" ;;
deb) dpkg --purge portolan ;;
rpm) rpm --nodeps -e portolan ;;
wheel) rm -r /opt/venv ;;
esac
say "all right"
