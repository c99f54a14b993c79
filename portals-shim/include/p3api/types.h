/* Types, constants and structures of Portals 3.3. */
#ifndef PORTOLAN_P3API_TYPES_H
#define PORTOLAN_P3API_TYPES_H

/* Before the system's headers, which a machine may not have for another size. */
#ifndef __LP64__
#error "only programs with 64-bit addresses are supported"
#endif

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../p3/errno.h"
#include "../p3/nal_types.h"

typedef uint64_t ptl_size_t;

typedef uint32_t ptl_handle_any_t;
typedef ptl_handle_any_t ptl_handle_ni_t;
typedef ptl_handle_any_t ptl_handle_md_t;
typedef ptl_handle_any_t ptl_handle_me_t;
typedef ptl_handle_any_t ptl_handle_eq_t;

typedef uint32_t ptl_interface_t;
typedef uint32_t ptl_nid_t;
typedef uint32_t ptl_pid_t;
typedef uint32_t ptl_uid_t;
typedef uint32_t ptl_jid_t;
typedef uint32_t ptl_pt_index_t;
typedef uint32_t ptl_ac_index_t;
typedef uint64_t ptl_match_bits_t;
typedef uint64_t ptl_hdr_data_t;
typedef uint32_t ptl_sr_index_t;
typedef uint64_t ptl_sr_value_t;
typedef uint32_t ptl_ni_fail_t;
typedef uint32_t ptl_seq_t;
/* Milliseconds. */
typedef uint32_t ptl_time_t;

#define PTL_INVALID_HANDLE ((ptl_handle_any_t)0xffffffffu)
#define PTL_HANDLE_NONE ((ptl_handle_any_t)0x7fffffffu)
#define PTL_EQ_NONE ((ptl_handle_eq_t)0xbfffffffu)

#define PTL_NID_ANY ((ptl_nid_t)0xffffffffu)
#define PTL_PID_ANY ((ptl_pid_t)0xffffffffu)
#define PTL_UID_ANY ((ptl_uid_t)0xffffffffu)
#define PTL_JID_ANY ((ptl_jid_t)0xffffffffu)
#define PTL_PT_INDEX_ANY ((ptl_pt_index_t)0xffffffffu)

#define PTL_TIME_FOREVER ((ptl_time_t)0xffffffffu)

#define PTL_NI_OK ((ptl_ni_fail_t)0)
#define PTL_NI_FAIL ((ptl_ni_fail_t)1)
/* Memory of this process could not be read, written, or given to the adapter: no fault of the peer. */
#define PTL_NI_SEGV ((ptl_ni_fail_t)2)

typedef struct {
	ptl_nid_t nid;
	ptl_pid_t pid;
} ptl_process_id_t;

/* The largest value of each kind; of indexes the largest valid one. */
typedef struct {
	int max_mes;
	int max_mds;
	int max_eqs;
	int max_ac_index;
	int max_pt_index;
	int max_md_iovecs;
	int max_me_list;
	int max_getput_md;
} ptl_ni_limits_t;

typedef enum { PTL_RETAIN = 0, PTL_UNLINK = 1 } ptl_unlink_t;

typedef enum { PTL_INS_BEFORE = 0, PTL_INS_AFTER = 1 } ptl_ins_pos_t;

typedef enum { PTL_ACK_REQ = 0, PTL_NO_ACK_REQ = 1 } ptl_ack_req_t;

/* Both spellings, visible to #ifdef. */
#define PTL_ACK_REQ PTL_ACK_REQ
#define PTL_NO_ACK_REQ PTL_NO_ACK_REQ
#define PTL_NOACK_REQ PTL_NO_ACK_REQ

/* Options of a memory descriptor. */
#define PTL_MD_OP_PUT 0x0001
#define PTL_MD_OP_GET 0x0002
#define PTL_MD_MANAGE_REMOTE 0x0004
#define PTL_MD_TRUNCATE 0x0008
#define PTL_MD_ACK_DISABLE 0x0010
#define PTL_MD_IOVEC 0x0020
#define PTL_MD_MAX_SIZE 0x0040
#define PTL_MD_EVENT_START_DISABLE 0x0080
#define PTL_MD_EVENT_END_DISABLE 0x0100
/* Accepted. An automatic unlink always makes its event, or, where PORTOLAN_CRAY_UNLINK_EVENTS is set,
 * only with the first. */
#define PTL_MD_EVENT_AUTO_UNLINK_ENABLE 0x0200
#define PTL_MD_FLAG_AUTO_UNLINK 0x0400
/* An explicit unlink (PtlMDUnlink, PtlMEUnlink) makes one too. */
#define PTL_MD_EVENT_MANUAL_UNLINK_ENABLE 0x0800

#define PTL_MD_THRESH_INF (-1)

typedef struct {
	/* First byte, or a ptl_md_iovec_t array with PTL_MD_IOVEC. */
	void *start;
	/* Bytes, or entries of that array. */
	ptl_size_t length;
	int threshold;
	ptl_size_t max_size;
	unsigned int options;
	void *user_ptr;
	ptl_handle_eq_t eq_handle;
} ptl_md_t;

typedef struct {
	void *iov_base;
	ptl_size_t iov_len;
} ptl_md_iovec_t;

typedef enum {
	PTL_EVENT_GET_START = 0,
	PTL_EVENT_GET_END = 1,
	PTL_EVENT_PUT_START = 2,
	PTL_EVENT_PUT_END = 3,
	PTL_EVENT_GETPUT_START = 4,
	PTL_EVENT_GETPUT_END = 5,
	PTL_EVENT_REPLY_START = 6,
	PTL_EVENT_REPLY_END = 7,
	PTL_EVENT_SEND_START = 8,
	PTL_EVENT_SEND_END = 9,
	PTL_EVENT_ACK = 10,
	PTL_EVENT_UNLINK = 11
} ptl_event_kind_t;

typedef struct {
	ptl_event_kind_t type;
	ptl_process_id_t initiator;
	ptl_uid_t uid;
	ptl_jid_t jid;
	ptl_pt_index_t pt_index;
	ptl_match_bits_t match_bits;
	ptl_size_t rlength;
	ptl_size_t mlength;
	ptl_size_t offset;
	ptl_handle_md_t md_handle;
	ptl_md_t md;
	ptl_hdr_data_t hdr_data;
	ptl_seq_t link;
	ptl_ni_fail_t ni_fail_type;
	volatile ptl_seq_t sequence;
} ptl_event_t;

typedef void (*ptl_eq_handler_t)(ptl_event_t *event);
#define PTL_EQ_HANDLER_NONE ((ptl_eq_handler_t)0)

/* Status registers: traffic; then of portals with entries, of operations under way, of entries,
 * descriptors and queues, how many were made and are gone, the most at one time, and how many there
 * are; then how many descriptors were made whose memory is aligned so and not better. */
#define PTL_SR_DROP_COUNT 0
#define PTL_SR_DROP_LENGTH 1
#define PTL_SR_RECV_COUNT 2
#define PTL_SR_RECV_LENGTH 3
#define PTL_SR_SEND_COUNT 4
#define PTL_SR_SEND_LENGTH 5
#define PTL_SR_PTLS_MAX 6
#define PTL_SR_PTLS_CUR 7
#define PTL_SR_MSGS_ALLOC 8
#define PTL_SR_MSGS_FREED 9
#define PTL_SR_MSGS_MAX 10
#define PTL_SR_MSGS_CUR 11
#define PTL_SR_MES_ALLOC 12
#define PTL_SR_MES_FREED 13
#define PTL_SR_MES_MAX 14
#define PTL_SR_MES_CUR 15
#define PTL_SR_MDS_ALLOC 16
#define PTL_SR_MDS_FREED 17
#define PTL_SR_MDS_MAX 18
#define PTL_SR_MDS_CUR 19
#define PTL_SR_EQS_ALLOC 20
#define PTL_SR_EQS_FREED 21
#define PTL_SR_EQS_MAX 22
#define PTL_SR_EQS_CUR 23
#define PTL_SR_MD_ALIGN_128 24
#define PTL_SR_MD_ALIGN_64 25
#define PTL_SR_MD_ALIGN_32 26
#define PTL_SR_MD_ALIGN_16 27
#define PTL_SR_MD_ALIGN_8 28
/* Messages that the adapters served alone, and those that the target's library handled; 0 on fabrics
 * with one way only. */
#define PTL_SR_FABRIC_FIRST 29
#define PTL_SR_ONE_SIDED 29
#define PTL_SR_TWO_SIDED 30
/* Entries on the list of a portal: now, and most so far. */
#define PTL_SR_LIST_CUR(pt_index) (0x80000000u | (unsigned)(pt_index) << 16 | 15)
#define PTL_SR_LIST_MAX(pt_index) (0x80000000u | (unsigned)(pt_index) << 16 | 14)

#endif
