/* Own memory outside of the segment that becomes longer after a part of its unit was pinned: a transfer across the old end
 * is made in pieces, of which the first is short, and the memory is the program's again afterwards. Between two nodes. */
#define _GNU_SOURCE
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gasnet_check.h"

enum { UNIT = 1 << 20, ROOM = 4 * UNIT, FIRST = 5000, ACROSS = 9000, BEYOND = 8192 };

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static void grow_and_get(char *theirs, size_t before)
{
	char *all = (char *)mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *end;
	int i;

	CHECK(all != MAP_FAILED);
	end = (char *)(((uintptr_t)all + 2 * UNIT) & ~(uintptr_t)(UNIT - 1)) + BEYOND;
	CHECK(mprotect(all, end - all, PROT_READ | PROT_WRITE) == 0);
	gasnet_get_bulk(end - FIRST, 1, theirs, FIRST);
	CHECK(mprotect(end, UNIT, PROT_READ | PROT_WRITE) == 0);
	gasnet_get_bulk(end - before, 1, theirs, ACROSS);
	for (i = 0; i < ACROSS; i++) CHECK(end[i - (int)before] == (char)(i * 7));
	gasnet_put_bulk(1, theirs, end - before, ACROSS);
	CHECK(munmap(all, ROOM) == 0);
}

int main(int argc, char **argv)
{
	static const size_t before[] = { 100, 904, 2040, 2041, 4000 };
	gasnet_seginfo_t segment[2];
	size_t i;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(NULL, 0, UNIT, 0));
	OK(gasnet_getSegmentInfo(segment, 2));
	for (i = 0; i < ACROSS; i++) ((char *)segment[gasnet_mynode()].addr)[i] = (char)(i * 7);
	barrier();
	if (gasnet_mynode() == 0)
		for (i = 0; i < sizeof before / sizeof *before; i++) grow_and_get((char *)segment[1].addr, before[i]);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
