/* Rules 46 and 51. Threads of one rank update one iovec descriptor: the pieces in the old values that each is given are
 * those of the update that gave the other values. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, MOST = 8, ROUNDS = 3000 };

static ptl_handle_md_t md;
static char memory[THREADS * ROUNDS + MOST];

/* Descriptor number `n`: its pieces, as many as `pieces_of` says, begin at byte `n`. */
static ptl_size_t pieces_of(size_t n)
{
	return 1 + n % MOST;
}

static ptl_md_t numbered(size_t n, ptl_md_iovec_t *pieces)
{
	ptl_md_t d;
	size_t i;

	for (i = 0; i < pieces_of(n); i++) {
		pieces[i].iov_base = memory + n + i;
		pieces[i].iov_len = 1;
	}
	d = describe(pieces, pieces_of(n), PTL_MD_IOVEC, PTL_EQ_NONE);
	d.user_ptr = memory + n;
	return d;
}

static void is_one(const ptl_md_t *old, const ptl_md_iovec_t *seen)
{
	size_t n = (size_t)((char *)old->user_ptr - memory), i;

	CHECK(n < sizeof memory && old->length == pieces_of(n));
	for (i = 0; i < pieces_of(n); i++)
		CHECK(seen[i].iov_base == memory + n + i && seen[i].iov_len == 1);
	for (; i < MOST; i++)
		CHECK(seen[i].iov_base == NULL);
}

static void *update(void *first)
{
	ptl_md_iovec_t pieces[MOST], seen[MOST];
	size_t n = (size_t)((char *)first - memory), last = n + ROUNDS;
	ptl_md_t old, wish;

	for (; n < last; n++) {
		wish = numbered(n, pieces);
		memset(&old, 0, sizeof old);
		memset(seen, 0, sizeof seen);
		old.options = PTL_MD_IOVEC;
		old.start = seen;
		old.length = MOST;
		/* Every fourth is a query. */
		OK(PtlMDUpdate(md, &old, n % 4 == 3 ? NULL : &wish, PTL_EQ_NONE));
		is_one(&old, seen);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	ptl_md_iovec_t pieces[MOST];
	ptl_handle_ni_t ni;
	size_t i;

	ni = open_default();
	OK(PtlMDBind(ni, numbered(0, pieces), PTL_RETAIN, &md));
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, update, memory + i * ROUNDS) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(PtlMDUnlink(md));
	OK(PtlNIFini(ni));
	return 0;
}
