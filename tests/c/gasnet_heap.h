/* Programs that move the end of the heap. */
#ifndef GASNET_HEAP_H
#define GASNET_HEAP_H

#include <malloc.h>
#include <stdlib.h>

#include "gasnet_check.h"

/* Has the allocator hold so many bytes that nobody uses. What the library allocates comes from them, and the end of the heap stays. */
static void keep_room(size_t bytes)
{
	volatile char *room;

	CHECK(mallopt(M_MMAP_MAX, 0) && mallopt(M_TRIM_THRESHOLD, -1) && mallopt(M_ARENA_MAX, 1));
	room = (volatile char *)malloc(bytes);
	CHECK(room != NULL);
	*room = 0;
	free((void *)room);
}

#endif
