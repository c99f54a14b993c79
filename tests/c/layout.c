/* Sizes, offsets and values that programs were compiled with elsewhere (64-bit). Compiles as C and
 * as C++; what is wrong is said when it runs. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <portals3.h>
#include <p3api/debug.h>

/* As GASNet declares it; compat.c has the other spelling. */
#ifdef __cplusplus
extern "C" {
#endif
extern char *ptl_event_str[];
#ifdef __cplusplus
}
#endif

static int wrong;

#define IS(expression, value) \
	do { \
		unsigned long long got_ = (unsigned long long)(expression); \
		if (got_ != (unsigned long long)(value)) { \
			fprintf(stderr, "%s is %llu, not %llu\n", #expression, got_, \
				(unsigned long long)(value)); \
			wrong = 1; \
		} \
	} while (0)
#define AT(type, field, offset) IS(offsetof(type, field), offset)

/* Scenarios 106 and 107. */
int main(void)
{
	IS(sizeof(ptl_size_t), 8);
	IS(sizeof(ptl_handle_any_t), 4);
	IS(sizeof(ptl_handle_ni_t), 4);
	IS(sizeof(ptl_handle_md_t), 4);
	IS(sizeof(ptl_handle_me_t), 4);
	IS(sizeof(ptl_handle_eq_t), 4);
	IS(sizeof(ptl_pt_index_t), 4);
	IS(sizeof(ptl_ac_index_t), 4);
	IS(sizeof(ptl_match_bits_t), 8);
	IS(sizeof(ptl_hdr_data_t), 8);
	IS(sizeof(ptl_interface_t), 4);
	IS(sizeof(ptl_nid_t), 4);
	IS(sizeof(ptl_pid_t), 4);
	IS(sizeof(ptl_uid_t), 4);
	IS(sizeof(ptl_jid_t), 4);
	IS(sizeof(ptl_sr_index_t), 4);
	IS(sizeof(ptl_sr_value_t), 8);
	IS(sizeof(ptl_ni_fail_t), 4);
	IS(sizeof(ptl_seq_t), 4);
	IS(sizeof(ptl_time_t), 4);
	IS(sizeof(ptl_unlink_t), 4);
	IS(sizeof(ptl_ins_pos_t), 4);
	IS(sizeof(ptl_ack_req_t), 4);
	IS(sizeof(ptl_event_kind_t), 4);
	IS(sizeof(ptl_eq_handler_t), 8);

	IS(sizeof(ptl_process_id_t), 8);
	AT(ptl_process_id_t, nid, 0);
	AT(ptl_process_id_t, pid, 4);

	IS(sizeof(ptl_ni_limits_t), 32);
	AT(ptl_ni_limits_t, max_mes, 0);
	AT(ptl_ni_limits_t, max_mds, 4);
	AT(ptl_ni_limits_t, max_eqs, 8);
	AT(ptl_ni_limits_t, max_ac_index, 12);
	AT(ptl_ni_limits_t, max_pt_index, 16);
	AT(ptl_ni_limits_t, max_md_iovecs, 20);
	AT(ptl_ni_limits_t, max_me_list, 24);
	AT(ptl_ni_limits_t, max_getput_md, 28);

	IS(sizeof(ptl_md_t), 56);
	AT(ptl_md_t, start, 0);
	AT(ptl_md_t, length, 8);
	AT(ptl_md_t, threshold, 16);
	AT(ptl_md_t, max_size, 24);
	AT(ptl_md_t, options, 32);
	AT(ptl_md_t, user_ptr, 40);
	AT(ptl_md_t, eq_handle, 48);

	IS(sizeof(ptl_md_iovec_t), 16);
	AT(ptl_md_iovec_t, iov_base, 0);
	AT(ptl_md_iovec_t, iov_len, 8);

	IS(sizeof(ptl_event_t), 144);
	AT(ptl_event_t, type, 0);
	AT(ptl_event_t, initiator, 4);
	AT(ptl_event_t, uid, 12);
	AT(ptl_event_t, jid, 16);
	AT(ptl_event_t, pt_index, 20);
	AT(ptl_event_t, match_bits, 24);
	AT(ptl_event_t, rlength, 32);
	AT(ptl_event_t, mlength, 40);
	AT(ptl_event_t, offset, 48);
	AT(ptl_event_t, md_handle, 56);
	AT(ptl_event_t, md, 64);
	AT(ptl_event_t, hdr_data, 120);
	AT(ptl_event_t, link, 128);
	AT(ptl_event_t, ni_fail_type, 132);
	AT(ptl_event_t, sequence, 136);

	IS(PTL_INVALID_HANDLE, 0xffffffffu);
	IS(PTL_HANDLE_NONE, 0x7fffffffu);
	IS(PTL_EQ_NONE, 0xbfffffffu);
	IS(PTL_NID_ANY, 0xffffffffu);
	IS(PTL_PID_ANY, 0xffffffffu);
	IS(PTL_UID_ANY, 0xffffffffu);
	IS(PTL_JID_ANY, 0xffffffffu);
	IS(PTL_PT_INDEX_ANY, 0xffffffffu);
	IS(PTL_TIME_FOREVER, 0xffffffffu);
	IS(PTL_MD_THRESH_INF, -1);
	IS(PTL_EQ_HANDLER_NONE == NULL, 1);
	IS(PTL_RETAIN, 0);
	IS(PTL_UNLINK, 1);
	IS(PTL_INS_BEFORE, 0);
	IS(PTL_INS_AFTER, 1);
	IS(PTL_ACK_REQ, 0);
	IS(PTL_NO_ACK_REQ, 1);
	IS(PTL_NI_OK, 0);
	IS(PTL_NI_FAIL, 1);
	IS(PTL_NI_SEGV, 2);
	IS(PTL_MD_OP_PUT, 0x1);
	IS(PTL_MD_OP_GET, 0x2);
	IS(PTL_MD_MANAGE_REMOTE, 0x4);
	IS(PTL_MD_TRUNCATE, 0x8);
	IS(PTL_MD_ACK_DISABLE, 0x10);
	IS(PTL_MD_IOVEC, 0x20);
	IS(PTL_MD_MAX_SIZE, 0x40);
	IS(PTL_MD_EVENT_START_DISABLE, 0x80);
	IS(PTL_MD_EVENT_END_DISABLE, 0x100);
	IS(PTL_MD_EVENT_MANUAL_UNLINK_ENABLE, 0x800);
	IS(PTL_EVENT_GET_START, 0);
	IS(PTL_EVENT_PUT_END, 3);
	IS(PTL_EVENT_GETPUT_END, 5);
	IS(PTL_EVENT_REPLY_END, 7);
	IS(PTL_EVENT_SEND_END, 9);
	IS(PTL_EVENT_ACK, 10);
	IS(PTL_EVENT_UNLINK, 11);
	IS(PTL_NALTYPE_UTCP, 0xf0f0f000u);
	IS(PTL_NALTYPE_IBNG, 0xf0f0f050u);
	IS(PTL_SR_DROP_COUNT, 0);
	IS(PTL_SR_MES_ALLOC, 12);
	IS(PTL_SR_EQS_CUR, 23);
	IS(PTL_SR_MD_ALIGN_128, 24);
	IS(PTL_SR_MD_ALIGN_8, 28);
	IS(PTL_SR_FABRIC_FIRST, 29);
	IS(PTL_SR_LIST_CUR(4), 0x8004000fu);
	IS(PTL_SR_LIST_MAX(63), 0x803f000eu);
	IS(PTL_DBG_SHUTDOWN, 0x2000);

	IS(PTL_OK, 0);
	IS(PTL_AC_INDEX_INVALID, 1);
	IS(PTL_EQ_INVALID, 4);
	IS(PTL_MD_IN_USE, 10);
	IS(PTL_ME_LIST_TOO_LONG, 14);
	IS(PTL_NO_INIT, 16);
	IS(PTL_SR_INDEX_INVALID, 23);
	IS(PTL_UNKNOWN_ERROR, 24);
	IS(PTL_MAX_ERRNO, 25);
	IS(PTL_IFACE_DUP > PTL_MAX_ERRNO, 1);

	/* Names, in all three ways to ask. */
	IS(strcmp(ptl_err_str[PTL_MD_IN_USE], "PTL_MD_IN_USE"), 0);
	IS(strcmp(ptl_err_str[PTL_SR_INDEX_INVALID], "PTL_SR_INDEX_INVALID"), 0);
	IS(strcmp(ptl_err_str[PTL_EQ_IN_USE], "PTL_EQ_IN_USE"), 0);
	IS(strcmp(ptl_event_str[PTL_EVENT_UNLINK], "PTL_EVENT_UNLINK"), 0);
	IS(strcmp(PtlErrorStr(0), "PTL_OK"), 0);
	IS(strcmp(PtlErrorStr(999), "PTL_UNKNOWN_ERROR"), 0);
	IS(strcmp(PtlErrorStr((unsigned)-1), "PTL_UNKNOWN_ERROR"), 0);
	IS(strcmp(PtlEventKindStr(PTL_EVENT_ACK), "PTL_EVENT_ACK"), 0);
	IS(strcmp(PtlEventKindStr((ptl_event_kind_t)12), "PTL_UNKNOWN_EVENT_KIND"), 0);
	IS(strcmp(PtlNIFailStr(0, PTL_NI_OK), "PTL_NI_OK"), 0);
	IS(strcmp(PtlNIFailStr(0, PTL_NI_FAIL), "PTL_NI_FAIL"), 0);
	IS(strcmp(PtlNIFailStr(0, PTL_NI_SEGV), "PTL_NI_SEGV"), 0);
	IS(strcmp(PtlNIFailStr(0, 77), "PTL_NI_UNKNOWN_ERROR"), 0);
	return wrong;
}
