/* Event queues as C sees them: handlers, polls and their time, peeking, overflow, freeing a queue
 * that a descriptor names, freed queues among others, conditional updates. One rank. */
#include "check.h"

#include <sys/time.h>

enum { PORTAL = 5 };

static char target[64], source[64];
static ptl_process_id_t self;
static int handled;
static ptl_handle_eq_t handler_queue;

/* May call the library: it looks into its own queue. */
static void handler(ptl_event_t *event)
{
	ptl_event_t next;
	int rc = PtlEQPeek(handler_queue, &next);

	CHECK(rc == PTL_OK || rc == PTL_EQ_EMPTY);
	CHECK(event->md.user_ptr == target);
	handled++;
	event->hdr_data += 1;
}

/* A target on PORTAL with its events in `eq`. */
static ptl_handle_md_t attach(ptl_handle_ni_t ni, ptl_handle_eq_t eq, unsigned options)
{
	ptl_handle_me_t me;
	ptl_handle_md_t md;
	ptl_md_t desc = describe(target, sizeof target, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE |
				 options, eq);

	OK(PtlMEAttach(ni, PORTAL, anyone, 1, 0, PTL_UNLINK, PTL_INS_AFTER, &me));
	OK(PtlMDAttach(me, desc, PTL_RETAIN, &md));
	return md;
}

static void put(ptl_handle_md_t md, ptl_hdr_data_t hdr_data)
{
	OK(PtlPut(md, PTL_NO_ACK_REQ, self, PORTAL, 0, 1, 0, hdr_data));
}

static double now(void)
{
	struct timeval t;

	gettimeofday(&t, NULL);
	return t.tv_sec + t.tv_usec * 1e-6;
}

/* Scenario 87; rule 58. */
static void with_handler(ptl_handle_ni_t ni, ptl_handle_md_t from)
{
	ptl_handle_eq_t eq, other, list[2];
	ptl_handle_md_t md;
	ptl_event_t e, peeked;
	int which = -1;

	OK(PtlEQAlloc(ni, 8, handler, &eq));
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &other));
	handler_queue = eq;
	handled = 0;
	md = attach(ni, eq, 0);
	put(from, 7);
	while (PtlEQPeek(eq, &peeked) == PTL_EQ_EMPTY)
		;
	CHECK(handled == 0 && peeked.type == PTL_EVENT_PUT_START && peeked.hdr_data == 7);
	OK(PtlEQWait(eq, &e));
	CHECK(handled == 1 && e.type == PTL_EVENT_PUT_START && e.hdr_data == 8);
	list[0] = other;
	list[1] = eq;
	OK(PtlEQPoll(list, 2, PTL_TIME_FOREVER, &e, &which));
	CHECK(handled == 2 && which == 1 && e.type == PTL_EVENT_PUT_END);
	GIVES(PTL_EQ_EMPTY, PtlEQGet(eq, &e));
	CHECK(handled == 2);
	OK(PtlMDUnlink(md));
	OK(PtlEQFree(eq));
	OK(PtlEQFree(other));
}

/* Scenario 84; rule 57. */
static void timeouts(ptl_handle_ni_t ni, int wall)
{
	ptl_handle_eq_t eq;
	ptl_event_t e;
	double start;
	int which;

	memset(&e, 0x55, sizeof e);
	OK(PtlEQAlloc(ni, 1, PTL_EQ_HANDLER_NONE, &eq));
	GIVES(PTL_EQ_EMPTY, PtlEQPoll(&eq, 1, 0, &e, &which));
	start = now();
	GIVES(PTL_EQ_EMPTY, PtlEQPoll(&eq, 1, 50, &e, &which));
	if (wall)
		CHECK(now() - start >= 0.05);
	CHECK(now() - start < 10);
	CHECK(e.rlength == 0x5555555555555555u);
	OK(PtlProgress(ni, 0));
	OK(PtlProgress(eq, 1));
	OK(PtlEQFree(eq));
	OK(PtlEQAlloc(ni, 0, PTL_EQ_HANDLER_NONE, &eq));
	CHECK(eq == PTL_EQ_NONE);
}

/* Scenario 80; rule 54. */
static void overflow(ptl_handle_ni_t ni, ptl_handle_md_t from)
{
	ptl_handle_eq_t eq, done;
	ptl_handle_md_t md;
	ptl_md_t desc;
	ptl_event_t e;
	int i, rc, gaps = 0;
	ptl_hdr_data_t last = 0;

	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlEQAlloc(ni, 32, PTL_EQ_HANDLER_NONE, &done));
	md = attach(ni, eq, PTL_MD_EVENT_START_DISABLE);
	/* The sender's own events say when all have arrived: each put is acknowledged. */
	desc = describe(source, 8, PTL_MD_EVENT_START_DISABLE | PTL_MD_EVENT_END_DISABLE, done);
	OK(PtlMDUpdate(from, NULL, &desc, PTL_EQ_NONE));
	for (i = 1; i <= 6; i++) {
		OK(PtlPut(from, PTL_ACK_REQ, self, PORTAL, 0, 1, 0, i));
		expect(done, PTL_EVENT_ACK);
	}
	while ((rc = PtlEQGet(eq, &e)) != PTL_EQ_EMPTY) {
		CHECK(rc == PTL_OK || rc == PTL_EQ_DROPPED);
		gaps += rc == PTL_EQ_DROPPED;
		CHECK(e.type == PTL_EVENT_PUT_END && e.hdr_data > last);
		last = e.hdr_data;
	}
	CHECK(gaps == 1 && last == 6);
	desc = describe(source, 8, 0, PTL_EQ_NONE);
	OK(PtlMDUpdate(from, NULL, &desc, PTL_EQ_NONE));
	OK(PtlMDUnlink(md));
	OK(PtlEQFree(eq));
	OK(PtlEQFree(done));
}

/* Scenario 89. */
static void freed_in_use(ptl_handle_ni_t ni, ptl_handle_md_t from)
{
	ptl_handle_eq_t eq, sent;
	ptl_handle_md_t md, out;
	ptl_md_t desc;
	ptl_event_t e;

	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlEQAlloc(ni, 4, PTL_EQ_HANDLER_NONE, &sent));
	md = attach(ni, eq, 0);
	OK(PtlEQFree(eq));
	GIVES(PTL_EQ_INVALID, PtlEQFree(eq));
	GIVES(PTL_EQ_INVALID, PtlEQGet(eq, &e));
	desc = describe(source, 8, 0, eq);
	GIVES(PTL_EQ_INVALID, PtlMDBind(ni, desc, PTL_RETAIN, &out));
	/* The descriptor goes on taking messages. */
	memset(target, 0, sizeof target);
	desc = describe(source, 8, PTL_MD_EVENT_START_DISABLE | PTL_MD_EVENT_END_DISABLE, sent);
	OK(PtlMDUpdate(from, NULL, &desc, PTL_EQ_NONE));
	OK(PtlPut(from, PTL_ACK_REQ, self, PORTAL, 0, 1, 0, 0));
	expect(sent, PTL_EVENT_ACK);
	CHECK(memcmp(target, source, 8) == 0);
	desc = describe(source, 8, 0, PTL_EQ_NONE);
	OK(PtlMDUpdate(from, NULL, &desc, PTL_EQ_NONE));
	OK(PtlMDUnlink(md));
	OK(PtlEQFree(sent));
	GIVES(PTL_EQ_INVALID, PtlEQGet(eq, &e));
}

/* Scenarios 91 and 97; rule 51. */
static void updates(ptl_handle_ni_t ni, ptl_handle_md_t from)
{
	ptl_handle_eq_t eq, bad;
	ptl_handle_md_t md, posted_md;
	ptl_handle_me_t base, posted_me;
	ptl_md_t old, wish, post;
	ptl_md_iovec_t pieces[3], seen[2];
	ptl_event_t e;

	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	md = attach(ni, eq, PTL_MD_EVENT_START_DISABLE);
	OK(PtlMEAttach(ni, PORTAL, anyone, 2, 0, PTL_RETAIN, PTL_INS_AFTER, &base));
	post = describe(target, 8, PTL_MD_OP_PUT, eq);

	/* A query. */
	memset(&old, 0, sizeof old);
	OK(PtlMDUpdate(md, &old, NULL, PTL_EQ_NONE));
	CHECK(old.start == target && old.length == sizeof target && old.eq_handle == eq &&
	      old.threshold == PTL_MD_THRESH_INF);

	/* A queue that is not empty refuses, and nothing changes or is made. */
	put(from, 0);
	while (PtlEQPeek(eq, &e) == PTL_EQ_EMPTY)
		;
	wish = old;
	wish.threshold = 1;
	memset(&old, 0x33, sizeof old);
	GIVES(PTL_MD_NO_UPDATE, PtlMDUpdate(md, &old, &wish, eq));
	CHECK(old.threshold == 0x33333333);
	GIVES(PTL_MD_NO_UPDATE,
	      PtlMEMDPost(ni, base, anyone, 3, 0, PTL_UNLINK, PTL_INS_BEFORE, post, PTL_UNLINK,
			  &posted_me, &posted_md, eq));
	expect(eq, PTL_EVENT_PUT_END);
	OK(PtlMEMDPost(ni, base, anyone, 3, 0, PTL_UNLINK, PTL_INS_BEFORE, post, PTL_UNLINK,
		       &posted_me, &posted_md, eq));
	OK(PtlMDUnlink(posted_md));
	GIVES(PTL_ME_INVALID, PtlMEUnlink(posted_me));
	/* Both in one call, or neither: the descriptor's fault leaves no entry behind. */
	OK(PtlMEMDInsert(ni, base, anyone, 5, 0, PTL_UNLINK, PTL_INS_AFTER, post, PTL_UNLINK,
			 &posted_me, &posted_md));
	GIVES(PTL_ME_IN_USE, PtlMDAttach(posted_me, post, PTL_UNLINK, &posted_md));
	OK(PtlMDUnlink(posted_md));
	GIVES(PTL_ME_INVALID, PtlMEUnlink(posted_me));
	OK(PtlMEUnlink(base));
	OK(PtlMEMDAttach(ni, 11, anyone, 5, 0, PTL_RETAIN, PTL_INS_AFTER, post, PTL_UNLINK,
			 &posted_me, &posted_md));
	OK(PtlMDUnlink(posted_md));
	OK(PtlMEUnlink(posted_me));
	post.start = NULL;
	GIVES(PTL_MD_ILLEGAL, PtlMEMDAttach(ni, 11, anyone, 5, 0, PTL_RETAIN, PTL_INS_AFTER, post,
					    PTL_UNLINK, &posted_me, &posted_md));
	OK(PtlMEAttach(ni, 11, anyone, 5, 0, PTL_RETAIN, PTL_INS_AFTER, &base));
	OK(PtlMEUnlink(base));

	/* A queue that is none. */
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &bad));
	OK(PtlEQFree(bad));
	GIVES(PTL_EQ_INVALID, PtlMDUpdate(md, NULL, &wish, bad));
	wish.eq_handle = bad;
	GIVES(PTL_EQ_INVALID, PtlMDUpdate(md, NULL, &wish, PTL_EQ_NONE));
	OK(PtlMDUpdate(md, &old, NULL, PTL_EQ_NONE));
	CHECK(old.threshold == PTL_MD_THRESH_INF && old.eq_handle == eq);

	/* To pieces and back; the pieces are given to who asks for them. */
	pieces[0].iov_base = target + 8;
	pieces[0].iov_len = 3;
	pieces[1].iov_base = NULL;
	pieces[1].iov_len = 0;
	pieces[2].iov_base = target;
	pieces[2].iov_len = 5;
	wish = describe(pieces, 3, PTL_MD_OP_PUT | PTL_MD_IOVEC | PTL_MD_MANAGE_REMOTE, eq);
	OK(PtlMDUpdate(md, NULL, &wish, eq));
	memset(pieces, 0, sizeof pieces);
	memset(target, 0, sizeof target);
	memcpy(source, "abcdefgh", 8);
	put(from, 0);
	e = expect(eq, PTL_EVENT_PUT_START);
	CHECK(e.md.start == pieces && e.md.length == 3 && e.mlength == 8);
	expect(eq, PTL_EVENT_PUT_END);
	CHECK(memcmp(target, "defgh", 5) == 0 && memcmp(target + 8, "abc", 3) == 0);
	memset(&old, 0, sizeof old);
	memset(seen, 0, sizeof seen);
	old.options = PTL_MD_IOVEC;
	old.start = seen;
	old.length = 2;
	wish = describe(target, sizeof target, PTL_MD_OP_PUT | PTL_MD_MANAGE_REMOTE, eq);
	OK(PtlMDUpdate(md, &old, &wish, eq));
	CHECK(old.start == pieces && old.length == 3 && (old.options & PTL_MD_IOVEC));
	CHECK(seen[0].iov_base == target + 8 && seen[0].iov_len == 3 && seen[1].iov_len == 0);
	put(from, 0);
	expect(eq, PTL_EVENT_PUT_START);
	expect(eq, PTL_EVENT_PUT_END);
	CHECK(memcmp(target, "abcdefgh", 8) == 0);
	OK(PtlMDUnlink(md));
	OK(PtlEQFree(eq));
}

/* Rule 57: what is no queue any more is refused whichever other queue has an event, and that stays. */
static void freed_in_list(ptl_handle_ni_t ni, ptl_handle_md_t from)
{
	ptl_handle_eq_t eq, empty, freed;
	ptl_handle_md_t md;
	ptl_event_t e;
	int which, at, i;

	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &eq));
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &empty));
	OK(PtlEQAlloc(ni, 8, PTL_EQ_HANDLER_NONE, &freed));
	OK(PtlEQFree(freed));
	md = attach(ni, eq, PTL_MD_EVENT_START_DISABLE);
	put(from, 7);
	while (PtlEQPeek(eq, &e) == PTL_EQ_EMPTY)
		;
	for (at = 0; at < 3; at++) {
		ptl_handle_eq_t list[3];

		for (i = 0; i < 3; i++) list[i] = i == at ? freed : i == (at == 0) ? eq : empty;
		which = -1;
		GIVES(PTL_EQ_INVALID, PtlEQPoll(list, 3, 0, &e, &which));
		CHECK(which == at);
		which = -1;
		GIVES(PTL_EQ_INVALID, PtlEQPoll(list, 3, PTL_TIME_FOREVER, &e, &which));
		CHECK(which == at);
	}
	CHECK(expect(eq, PTL_EVENT_PUT_END).hdr_data == 7);
	OK(PtlMDUnlink(md));
	OK(PtlEQFree(empty));
	OK(PtlEQFree(eq));
}

static void all(ptl_handle_ni_t ni, int wall)
{
	ptl_handle_md_t from;

	OK(PtlGetId(ni, &self));
	OK(PtlMDBind(ni, describe(source, 8, 0, PTL_EQ_NONE), PTL_RETAIN, &from));
	with_handler(ni, from);
	timeouts(ni, wall);
	overflow(ni, from);
	freed_in_use(ni, from);
	freed_in_list(ni, from);
	updates(ni, from);
	OK(PtlMDUnlink(from));
}

int main(void)
{
	ptl_handle_ni_t ni = open_default();

	memset(source, 'x', sizeof source);
	/* Time is the machine's on the interface of the own process, and may be simulated on that of the
	 * job. */
	all(ni, tested_interface() == PTL_IFACE_SELF);
	OK(PtlNIFini(ni));
	PtlFini();
	return 0;
}
