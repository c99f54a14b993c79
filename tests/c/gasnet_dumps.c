/* Which of the segments are part of a core dump of this process: the own one, and those that it maps of others. Prints how many of
 * the mappings of at least the segment's size are left out, and how many are not. With an argument the segment is the largest. */
#include <gasnet.h>

#include <stdio.h>
#include <string.h>

#include "gasnet_check.h"

enum { SIZE = 32 << 20 };

int main(int argc, char **argv)
{
	char line[4096];
	unsigned long long from, to;
	int out = 0, in = 0, large = 0;
	size_t size = SIZE;
	FILE *smaps;

	OK(gasnet_init(&argc, &argv));
	if (argc > 1) size = gasnet_getMaxGlobalSegmentSize();
	OK(gasnet_attach(NULL, 0, size, 0));
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
	smaps = fopen("/proc/self/smaps", "r");
	CHECK(smaps != NULL);
	while (fgets(line, sizeof line, smaps) != NULL) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2) {
			/* What may be read: reserved addresses are not dumped. */
			large = to - from >= size && strstr(line, " r") != NULL;
		} else if (large && strncmp(line, "VmFlags:", 8) == 0) {
			*(strstr(line, " dd") != NULL ? &out : &in) += 1;
		}
	}
	fclose(smaps);
	printf("node %d: %d out, %d in: all right\n", (int)gasnet_mynode(), out, in);
	fflush(NULL);
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
	gasnet_exit(0);
	return 1;
}
