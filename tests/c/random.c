/* Random calls of every function, most of them wrong: arguments out of range, handles that are stale or were never given,
 * memory that is not there. Whatever the codes are, the process lives, no call hangs, nothing outside of what descriptors
 * name is written, an event tells of nothing that cannot be, and the interface closes.
 *
 * random CALLS SEED: ranks of a job make other calls each, and aim at each other, at themselves and at nobody. */
#include "check.h"

#include <catamount/cnos_mpi_os.h>
#include <stdint.h>
#include <sys/mman.h>

/* Blocks of the memory that descriptors name pieces of; each second one belongs to none. */
#define BLOCK ((size_t)16384)
#define BLOCKS 32
#define HANDLES 64
#define QUEUES 8
#define DATA 0xa5
#define CANARY 0x5a

static uint64_t state;
static unsigned ranks, me;
static ptl_handle_ni_t ni;
static unsigned char *memory;
/* Memory that is not there: below what systems map. A page that was unmapped may be given to the
 * library, as any other. */
static void *const nowhere = (void *)4096;
static ptl_handle_any_t handles[HANDLES];
static ptl_handle_eq_t queues[QUEUES];
static ptl_process_id_t ids[16];
static ptl_md_iovec_t pieces[64];
static unsigned long done, events;

/* xorshift64* */
static uint32_t any(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 32);
}

static unsigned below(unsigned n)
{
	return any() % n;
}

static int one_in(unsigned n)
{
	return below(n) == 0;
}

static uint64_t any64(void)
{
	return (uint64_t)any() << 32 | any();
}

/* Mostly one that was given, of whichever kind, and still there or not. */
static ptl_handle_any_t handle(void)
{
	switch (below(24)) {
	case 0:
		return any();
	case 1:
		return PTL_INVALID_HANDLE;
	case 2:
		return PTL_HANDLE_NONE;
	case 3:
		return ni;
	case 4:
		return handles[below(HANDLES)] + (1u << below(32));
	default:
		return handles[below(HANDLES)];
	}
}

static ptl_handle_ni_t interface(void)
{
	return one_in(12) ? handle() : ni;
}

static ptl_handle_eq_t queue(void)
{
	return one_in(12) ? handle() : one_in(6) ? PTL_EQ_NONE : queues[below(QUEUES)];
}

static ptl_process_id_t process(void)
{
	ptl_process_id_t id = ids[below(ranks)];

	switch (below(24)) {
	case 0:
		id.nid = any();
		break;
	case 1:
		id.pid = any();
		break;
	case 2:
	case 3:
		id.nid = PTL_NID_ANY;
		id.pid = PTL_PID_ANY;
		break;
	case 4:
		id.pid = PTL_PID_ANY;
		break;
	}
	return id;
}

static ptl_pt_index_t portal(void)
{
	return one_in(24) ? any() : one_in(24) ? 60 + below(8) : below(4);
}

static ptl_match_bits_t bits(void)
{
	return one_in(16) ? any64() : below(4);
}

static ptl_match_bits_t ignored(void)
{
	return one_in(3) ? ~0ull : one_in(3) ? any64() : 0;
}

static ptl_size_t size(void)
{
	static const ptl_size_t some[] = {0, 1, 3, 8, 100, 2048, 4096, 5000, 16384};

	switch (below(40)) {
	case 0:
		return any64();
	case 1:
		return (ptl_size_t)0 - below(5000);
	default:
		return some[below(9)];
	}
}

static ptl_unlink_t unlinking(void)
{
	return one_in(40) ? (ptl_unlink_t)below(9) : (ptl_unlink_t)below(2);
}

static ptl_ins_pos_t position(void)
{
	return one_in(40) ? (ptl_ins_pos_t)below(9) : (ptl_ins_pos_t)below(2);
}

/* A piece of a block that descriptors may name. */
static void *piece(ptl_size_t *length)
{
	size_t from = below(BLOCK);

	*length = one_in(6) ? 0 : below((unsigned)(BLOCK - from)) + 1;
	return memory + 2 * below(BLOCKS / 2) * BLOCK + from;
}

static ptl_md_t descriptor(void)
{
	ptl_size_t length;
	void *start = piece(&length);
	unsigned options = below(4) | (one_in(2) ? PTL_MD_TRUNCATE : 0) |
			   (one_in(2) ? PTL_MD_MANAGE_REMOTE : 0) |
			   (one_in(4) ? PTL_MD_ACK_DISABLE : 0) |
			   (one_in(3) ? PTL_MD_EVENT_START_DISABLE : 0) |
			   (one_in(5) ? PTL_MD_EVENT_END_DISABLE : 0) |
			   (one_in(5) ? PTL_MD_MAX_SIZE : 0);
	ptl_md_t md = describe(start, length, options, queue());

	if (one_in(6)) {
		unsigned n = below(64);
		unsigned first = below(64 - n);
		unsigned i;

		for (i = first; i < first + n; i++) {
			ptl_size_t len;

			pieces[i].iov_base = piece(&len);
			pieces[i].iov_len = len;
		}
		if (one_in(10))
			pieces[first].iov_len = any64() | (uint64_t)1 << 60;
		if (one_in(20))
			pieces[first].iov_base = nowhere;
		md.start = &pieces[first];
		md.length = n;
		md.options |= PTL_MD_IOVEC;
	}
	md.threshold = one_in(2) ? PTL_MD_THRESH_INF : (int)below(5) - 1;
	md.max_size = size();
	if (one_in(60))
		md.options = any();
	if (one_in(60))
		md.threshold = (int)any();
	if (one_in(60))
		md.start = NULL;
	if (one_in(60))
		md.start = nowhere;
	/* Larger than all memory: refused, or nothing else here would hold. */
	if (one_in(60))
		md.length = ~(ptl_size_t)0 - below(100);
	return md;
}

static void keep(ptl_handle_any_t h)
{
	handles[below(HANDLES)] = h;
}

static void seen(const ptl_event_t *e)
{
	events++;
	CHECK((unsigned)e->type <= PTL_EVENT_UNLINK);
	CHECK(e->mlength <= e->rlength);
}

static void look(void)
{
	ptl_handle_eq_t several[QUEUES];
	ptl_event_t e;
	int n = 1 + (int)below(QUEUES), which = -1, i, code;

	memset(&e, 0, sizeof e);
	e.type = (ptl_event_kind_t)99;
	switch (below(4)) {
	case 0:
		code = PtlEQPeek(queue(), one_in(50) ? NULL : &e);
		if (code == PTL_OK || code == PTL_EQ_DROPPED)
			seen(&e);
		break;
	case 1:
		for (i = 0; i < n; i++)
			several[i] = queue();
		if (one_in(30))
			n = (int)any();
		/* Never more than there is. */
		if (n > QUEUES)
			n = -n;
		code = PtlEQPoll(several, n, below(2), &e, &which);
		if (code == PTL_OK || code == PTL_EQ_DROPPED) {
			CHECK(which >= 0 && which < n);
			seen(&e);
		}
		break;
	default:
		code = PtlEQGet(queue(), &e);
		if (code == PTL_OK || code == PTL_EQ_DROPPED)
			seen(&e);
	}
}

static void make(void)
{
	ptl_handle_any_t a = PTL_INVALID_HANDLE, b = PTL_INVALID_HANDLE;
	ptl_pt_index_t pt = 0;
	ptl_handle_any_t *out = one_in(60) ? NULL : &a;
	int code;

	switch (below(10)) {
	case 0:
		code = PtlMEAttach(interface(), portal(), process(), bits(), ignored(),
				   unlinking(), position(), out);
		break;
	case 1:
		code = PtlMEAttachAny(interface(), &pt, process(), bits(), ignored(), unlinking(),
				      out);
		break;
	case 2:
		code = PtlMEInsert(handle(), process(), bits(), ignored(), unlinking(), position(),
				   out);
		break;
	case 3:
	case 4:
		code = PtlMDAttach(handle(), descriptor(), unlinking(), out);
		break;
	case 5:
		code = PtlMDBind(interface(), descriptor(), unlinking(), out);
		break;
	case 6:
		code = PtlMEMDInsert(interface(), handle(), process(), bits(), ignored(),
				     unlinking(), position(), descriptor(), unlinking(), out, &b);
		break;
	case 7:
		code = PtlMEMDPost(interface(), handle(), process(), bits(), ignored(),
				   unlinking(), position(), descriptor(), unlinking(), out, &b,
				   queue());
		break;
	default:
		code = PtlMEMDAttach(interface(), portal(), process(), bits(), ignored(),
				     unlinking(), position(), descriptor(), unlinking(), out, &b);
	}
	if (code == PTL_OK) {
		keep(a);
		if (b != PTL_INVALID_HANDLE)
			keep(b);
	}
}

static void move(void)
{
	switch (below(6)) {
	case 0:
	case 1:
		PtlPut(handle(), (ptl_ack_req_t)(one_in(30) ? below(9) : below(2)), process(),
		       portal(), below(3), bits(), size(), any64());
		break;
	case 2:
		PtlPutRegion(handle(), size(), size(), (ptl_ack_req_t)below(2), process(), portal(),
			     below(3), bits(), size(), any64());
		break;
	case 3:
		PtlGet(handle(), process(), portal(), below(3), bits(), size());
		break;
	case 4:
		PtlGetRegion(handle(), size(), size(), process(), portal(), below(3), bits(),
			     size());
		break;
	default:
		if (one_in(2))
			PtlGetPut(handle(), handle(), process(), portal(), below(3), bits(), size(),
				  any64());
		else
			PtlGetPutRegion(handle(), size(), handle(), size(), size(), process(),
					portal(), below(3), bits(), size(), any64());
	}
}

static void end(void)
{
	ptl_handle_any_t h = handle();

	switch (below(3)) {
	case 0:
		PtlMEUnlink(h);
		break;
	case 1:
		PtlMDUnlink(h);
		break;
	default:
		/* Queues of the pool are needed. */
		if (one_in(8)) {
			unsigned i = below(QUEUES);
			ptl_handle_eq_t eq = PTL_EQ_NONE;

			PtlEQFree(queues[i]);
			queues[i] = PTL_EQ_NONE;
			if (PtlEQAlloc(ni, 1 + below(64), PTL_EQ_HANDLER_NONE, &eq) == PTL_OK)
				queues[i] = eq;
		} else {
			PtlEQFree(h);
		}
	}
}

/* Where the old values of a descriptor go, those of its pieces too. */
static ptl_md_t described(void)
{
	static ptl_md_iovec_t given[64];
	ptl_md_t md = describe(given, one_in(2) ? 64 : below(64), one_in(2) ? PTL_MD_IOVEC : 0,
			       PTL_EQ_NONE);

	if (one_in(10))
		md.start = one_in(2) ? NULL : nowhere;
	return md;
}

static void ask(void)
{
	ptl_md_t old = described(), new = descriptor();
	ptl_sr_value_t value;
	ptl_process_id_t id;
	unsigned long distance;
	unsigned word;
	ptl_handle_any_t h = PTL_INVALID_HANDLE;

	switch (below(10)) {
	case 0:
		PtlNIStatus(interface(), one_in(3) ? any() : below(40), &value);
		break;
	case 1:
		PtlNIDist(interface(), process(), &distance);
		break;
	case 2:
		PtlNIHandle(handle(), &h);
		break;
	case 3:
		PtlGetUid(interface(), &word);
		PtlGetJid(interface(), &word);
		PtlGetId(interface(), &id);
		break;
	case 4:
		/* More than there can be. */
		if (PtlEQAlloc(interface(), size() << below(40), PTL_EQ_HANDLER_NONE, &h) == PTL_OK)
			PtlEQFree(h);
		break;
	case 5:
		/* Entry 0 is what this job lives on. */
		PtlACEntry(interface(), 1 + below(4), process(), one_in(2) ? PTL_UID_ANY : any(),
			   one_in(2) ? PTL_JID_ANY : any(), one_in(2) ? PTL_PT_INDEX_ANY : portal());
		break;
	case 6:
		PtlProgress(one_in(8) ? handle() : ni, 0);
		break;
	case 7:
		CHECK(PtlErrorStr(any()) != NULL);
		CHECK(PtlEventKindStr((ptl_event_kind_t)below(200)) != NULL);
		CHECK(PtlNIFailStr(interface(), any()) != NULL);
		break;
	default:
		PtlMDUpdate(handle(), one_in(2) ? &old : NULL, one_in(2) ? &new : NULL, queue());
	}
}

int main(int argc, char **argv)
{
	unsigned long calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
	unsigned i;
	size_t at;

	ni = open_default();
	OK(PtlGetRank(ni, &me, &ranks));
	if (ranks > 16)
		ranks = 16;
	for (i = 0; i < ranks; i++)
		OK(PtlGetRankId(ni, i, &ids[i]));
	state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 1000003 + me * 7919 + 1;
	memory = mmap(NULL, BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	CHECK(memory != MAP_FAILED);
	for (i = 0; i < BLOCKS; i++)
		memset(memory + i * BLOCK, i % 2 ? CANARY : DATA, BLOCK);
	for (i = 0; i < HANDLES; i++)
		handles[i] = PTL_INVALID_HANDLE;
	for (i = 0; i < QUEUES; i++)
		OK(PtlEQAlloc(ni, 1u << i, PTL_EQ_HANDLER_NONE, &queues[i]));
	OK(PtlACEntry(ni, 0, anyone, PTL_UID_ANY, PTL_JID_ANY, PTL_PT_INDEX_ANY));
	cnos_barrier();
	for (done = 0; done < calls; done++) {
		switch (below(8)) {
		case 0:
		case 1:
			make();
			break;
		case 2:
		case 3:
			move();
			break;
		case 4:
		case 5:
			look();
			break;
		case 6:
			end();
			break;
		default:
			ask();
		}
	}
	cnos_barrier();
	OK(PtlNIFini(ni));
	for (i = 1; i < BLOCKS; i += 2)
		for (at = 0; at < BLOCK; at++)
			CHECK(memory[i * BLOCK + at] == CANARY);
	CHECK(events > 0);
	PtlFini();
	printf("rank %u: %lu calls, %lu events\n", me, done, events);
	return 0;
}
