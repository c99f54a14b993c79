/* Two ranks: a put with acknowledgement, a get, a getput; ranks and ids by both start-up headers.
 * The interface stays open at the end, as real programs leave it. */
#include "check.h"

#include <catamount/cnos_mpi_os.h>

enum { PORTAL = 38, SIZE = 4096 };

static unsigned char target[SIZE], source[SIZE], fetched[SIZE];

static void fill(unsigned char *bytes, unsigned char seed)
{
	for (int i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(seed + i * 7);
}

static void initiate(ptl_handle_ni_t ni, ptl_process_id_t peer)
{
	ptl_handle_eq_t eq;
	ptl_handle_md_t md_h, get_h;
	ptl_event_t e;

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &eq));
	fill(source, 3);
	OK(PtlMDBind(ni, describe(source, SIZE, 0, eq), PTL_RETAIN, &md_h));
	OK(PtlMDBind(ni, describe(fetched, SIZE, 0, eq), PTL_RETAIN, &get_h));

	OK(PtlPutRegion(md_h, 8, 40, PTL_ACK_REQ, peer, PORTAL, 0, 77, 16, 0x1122334455667788u));
	e = expect(eq, PTL_EVENT_SEND_START);
	CHECK(e.offset == 8 && e.rlength == 40 && e.md_handle == md_h);
	expect(eq, PTL_EVENT_SEND_END);
	e = expect(eq, PTL_EVENT_ACK);
	CHECK(e.mlength == 40 && e.rlength == 40 && e.match_bits == 77 && e.pt_index == PORTAL);
	CHECK(e.initiator.nid == peer.nid && e.initiator.pid == peer.pid);
	CHECK(e.md.start == source && e.md.user_ptr == source && e.md.length == SIZE);

	OK(PtlGetRegion(get_h, 24, 40, peer, PORTAL, 0, 77, 16));
	e = expect(eq, PTL_EVENT_REPLY_START);
	CHECK(e.offset == 24 && e.md_handle == get_h);
	expect(eq, PTL_EVENT_REPLY_END);
	CHECK(memcmp(fetched + 24, source + 8, 40) == 0);
	CHECK(fetched[23] == 0 && fetched[64] == 0);

	/* The swap brings the 8 bytes that the put left and leaves others. */
	memset(source, 0x5a, 8);
	OK(PtlGetPutRegion(get_h, 0, md_h, 0, 8, peer, PORTAL, 0, 77, 16, 99));
	expect(eq, PTL_EVENT_SEND_START);
	expect(eq, PTL_EVENT_SEND_END);
	expect(eq, PTL_EVENT_REPLY_START);
	expect(eq, PTL_EVENT_REPLY_END);
	CHECK(memcmp(fetched, fetched + 24, 8) == 0);

	/* A get of all of it, by the name that it has on Cray's systems within a node. */
	OK(PtlMDMDCopy(get_h, peer, PORTAL, 0, 77, 0));
	e = expect(eq, PTL_EVENT_REPLY_START);
	CHECK(e.offset == 0 && e.md_handle == get_h);
	e = expect(eq, PTL_EVENT_REPLY_END);
	CHECK(e.mlength == SIZE && fetched[15] == 0 && fetched[16] == 0x5a && fetched[23] == 0x5a);
	CHECK(memcmp(fetched + 24, source + 16, 32) == 0);

	OK(PtlMDUnlink(md_h));
	GIVES(PTL_MD_INVALID, PtlMDUnlink(md_h));
	OK(PtlMDUnlink(get_h));
	OK(PtlEQFree(eq));
}

static ptl_handle_eq_t target_eq;

static void make_target(ptl_handle_ni_t ni, ptl_process_id_t peer)
{
	ptl_handle_me_t me_h;
	ptl_handle_md_t md_h;

	OK(PtlEQAlloc(ni, 16, PTL_EQ_HANDLER_NONE, &target_eq));
	OK(PtlMEAttach(ni, PORTAL, peer, 77, 0, PTL_RETAIN, PTL_INS_AFTER, &me_h));
	OK(PtlMDAttach(me_h,
		       describe(target, SIZE,
				PTL_MD_OP_PUT | PTL_MD_OP_GET | PTL_MD_MANAGE_REMOTE |
					PTL_MD_EVENT_AUTO_UNLINK_ENABLE,
				target_eq),
		       PTL_RETAIN, &md_h));
}

static void respond(void)
{
	ptl_event_t e;

	e = expect(target_eq, PTL_EVENT_PUT_START);
	CHECK(e.hdr_data == 0x1122334455667788u && e.offset == 16 && e.mlength == 40);
	expect(target_eq, PTL_EVENT_PUT_END);
	fill(source, 3);
	/* The first 8 bytes may be those of the swap already; the initiator has compared what the put left there. */
	CHECK(target[15] == 0 && target[56] == 0 && memcmp(target + 24, source + 16, 32) == 0);
	expect(target_eq, PTL_EVENT_GET_START);
	expect(target_eq, PTL_EVENT_GET_END);
	e = expect(target_eq, PTL_EVENT_GETPUT_START);
	CHECK(e.hdr_data == 99);
	expect(target_eq, PTL_EVENT_GETPUT_END);
	expect(target_eq, PTL_EVENT_GET_START);
	expect(target_eq, PTL_EVENT_GET_END);
	for (int i = 0; i < 8; i++)
		CHECK(target[16 + i] == 0x5a);
}

int main(void)
{
	ptl_handle_ni_t ni = open_default();
	cnos_nidpid_map_t *map;
	unsigned rank, size;
	ptl_process_id_t own, by_rank, peer;

	OK(PtlGetRank(ni, &rank, &size));
	CHECK(size == 2 && cnos_get_rank() == (int)rank && cnos_get_size() == 2);
	OK(PtlGetId(ni, &own));
	OK(PtlGetRankId(ni, rank, &by_rank));
	CHECK(own.nid == by_rank.nid && own.pid == by_rank.pid);
	OK(PtlGetRankId(ni, 1 - rank, &peer));

	cnos_barrier_init(ni);
	CHECK(cnos_register_ptlid(own) == 0);
	CHECK(cnos_get_nidpid_map(&map) == 2);
	CHECK(map[rank].nid == own.nid && map[rank].pid == own.pid);
	CHECK(map[1 - rank].nid == peer.nid && map[1 - rank].pid == peer.pid);

	if (rank == 1)
		make_target(ni, peer);
	CHECK(cnos_barrier() == 0);
	if (rank == 0)
		initiate(ni, peer);
	else
		respond();
	printf("rank %u: all right\n", rank);
	return 0;
}
