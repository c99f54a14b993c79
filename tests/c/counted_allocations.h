/* The C library's allocator, whose calls are counted: `allocations` while `counting`. */
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static volatile int counting;
static volatile long allocations;

static void count(void)
{
	if (counting) __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes)
{
	count();
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	count();
	return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
	count();
	return __libc_realloc(old, bytes);
}

int posix_memalign(void **at, size_t alignment, size_t bytes)
{
	count();
	*at = __libc_memalign(alignment, bytes);
	return *at == NULL ? 12 : 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	count();
	return __libc_memalign(alignment, bytes);
}
