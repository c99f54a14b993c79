/* Functions of Portals 3.3. Every function but PtlFini returns a code of <p3/errno.h>. */
#ifndef PORTOLAN_P3API_API_H
#define PORTOLAN_P3API_API_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Library. */
int PtlInit(int *max_interfaces);
void PtlFini(void);

/* Interface. */
int PtlNIInit(ptl_interface_t interface, ptl_pid_t pid, ptl_ni_limits_t *desired,
	      ptl_ni_limits_t *actual, ptl_handle_ni_t *ni_handle);
int PtlNIFini(ptl_handle_ni_t ni_handle);
int PtlNIStatus(ptl_handle_ni_t ni_handle, ptl_sr_index_t register_index,
		ptl_sr_value_t *status);
int PtlNIDist(ptl_handle_ni_t ni_handle, ptl_process_id_t process, unsigned long *distance);
int PtlNIHandle(ptl_handle_any_t handle, ptl_handle_ni_t *ni_handle);

/* Identity. */
int PtlGetUid(ptl_handle_ni_t ni_handle, ptl_uid_t *uid);
int PtlGetId(ptl_handle_ni_t ni_handle, ptl_process_id_t *id);
int PtlGetJid(ptl_handle_ni_t ni_handle, ptl_jid_t *jid);

/* Match entries. */
int PtlMEAttach(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, ptl_process_id_t match_id,
		ptl_match_bits_t match_bits, ptl_match_bits_t ignore_bits, ptl_unlink_t unlink,
		ptl_ins_pos_t position, ptl_handle_me_t *me_handle);
int PtlMEAttachAny(ptl_handle_ni_t ni_handle, ptl_pt_index_t *pt_index,
		   ptl_process_id_t match_id, ptl_match_bits_t match_bits,
		   ptl_match_bits_t ignore_bits, ptl_unlink_t unlink,
		   ptl_handle_me_t *me_handle);
int PtlMEInsert(ptl_handle_me_t base, ptl_process_id_t match_id, ptl_match_bits_t match_bits,
		ptl_match_bits_t ignore_bits, ptl_unlink_t unlink, ptl_ins_pos_t position,
		ptl_handle_me_t *me_handle);
int PtlMEUnlink(ptl_handle_me_t me_handle);

/* Memory descriptors. */
int PtlMDAttach(ptl_handle_me_t me_handle, ptl_md_t md, ptl_unlink_t unlink_op,
		ptl_handle_md_t *md_handle);
int PtlMDBind(ptl_handle_ni_t ni_handle, ptl_md_t md, ptl_unlink_t unlink_op,
	      ptl_handle_md_t *md_handle);
int PtlMDUnlink(ptl_handle_md_t md_handle);
int PtlMDUpdate(ptl_handle_md_t md_handle, ptl_md_t *old_md, ptl_md_t *new_md,
		ptl_handle_eq_t eq_handle);
/* PtlMEAttach or PtlMEInsert with PtlMDAttach: both are made, or neither. */
int PtlMEMDAttach(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index, ptl_process_id_t match_id,
		  ptl_match_bits_t match_bits, ptl_match_bits_t ignore_bits, ptl_unlink_t unlink,
		  ptl_ins_pos_t position, ptl_md_t md, ptl_unlink_t unlink_op,
		  ptl_handle_me_t *me_handle, ptl_handle_md_t *md_handle);
int PtlMEMDInsert(ptl_handle_ni_t ni_handle, ptl_handle_me_t base, ptl_process_id_t match_id,
		  ptl_match_bits_t match_bits, ptl_match_bits_t ignore_bits, ptl_unlink_t unlink,
		  ptl_ins_pos_t position, ptl_md_t md, ptl_unlink_t unlink_op,
		  ptl_handle_me_t *me_handle, ptl_handle_md_t *md_handle);
/* PtlMEInsert, PtlMDAttach and the test of PtlMDUpdate in one step: where the queue eq_handle is
 * not empty nothing is made. */
int PtlMEMDPost(ptl_handle_ni_t ni_handle, ptl_handle_me_t base, ptl_process_id_t match_id,
		ptl_match_bits_t match_bits, ptl_match_bits_t ignore_bits, ptl_unlink_t unlink,
		ptl_ins_pos_t position, ptl_md_t md, ptl_unlink_t unlink_op,
		ptl_handle_me_t *me_handle, ptl_handle_md_t *md_handle,
		ptl_handle_eq_t eq_handle);

/* Event queues. */
int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count, ptl_eq_handler_t eq_handler,
	       ptl_handle_eq_t *eq_handle);
int PtlEQFree(ptl_handle_eq_t eq_handle);
int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t *event);
int PtlEQPeek(ptl_handle_eq_t eq_handle, ptl_event_t *event);
int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t *event);
int PtlEQPoll(ptl_handle_eq_t *eq_handles, int size, ptl_time_t timeout, ptl_event_t *event,
	      int *which_eq);

/* Access control. */
int PtlACEntry(ptl_handle_ni_t ni_handle, ptl_ac_index_t ac_index, ptl_process_id_t match_id,
	       ptl_uid_t user_id, ptl_jid_t job_id, ptl_pt_index_t pt_index);
/* The form of Portals 3.2, without the job: five arguments mean any job. C++98 has no macros of a variable number of
 * arguments, and C90 has them as an extension. */
static __inline__ int PtlACEntry32(ptl_handle_ni_t ni_handle, ptl_ac_index_t ac_index,
				   ptl_process_id_t match_id, ptl_uid_t user_id,
				   ptl_pt_index_t pt_index)
{
	return PtlACEntry(ni_handle, ac_index, match_id, user_id, PTL_JID_ANY, pt_index);
}
#if defined(__cplusplus) && __cplusplus < 201103L
extern "C++" {
static __inline__ int PtlACEntry(ptl_handle_ni_t ni_handle, ptl_ac_index_t ac_index,
				 ptl_process_id_t match_id, ptl_uid_t user_id,
				 ptl_pt_index_t pt_index)
{
	return PtlACEntry32(ni_handle, ac_index, match_id, user_id, pt_index);
}
}
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wvariadic-macros"
#define PORTOLAN_AC_FORM(a, b, c, d, e, f, g, h, i, form, ...) form
#define PtlACEntry(...)                                                                            \
	PORTOLAN_AC_FORM(__VA_ARGS__, PtlACEntry, PtlACEntry, PtlACEntry, PtlACEntry,              \
			 PtlACEntry32, PtlACEntry, PtlACEntry, PtlACEntry, PtlACEntry, 0)          \
	(__VA_ARGS__)
#pragma GCC diagnostic pop
#endif

/* Data movement. */
int PtlPut(ptl_handle_md_t md_handle, ptl_ack_req_t ack_req, ptl_process_id_t target_id,
	   ptl_pt_index_t pt_index, ptl_ac_index_t ac_index, ptl_match_bits_t match_bits,
	   ptl_size_t remote_offset, ptl_hdr_data_t hdr_data);
int PtlPutRegion(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
		 ptl_ack_req_t ack_req, ptl_process_id_t target_id, ptl_pt_index_t pt_index,
		 ptl_ac_index_t ac_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset,
		 ptl_hdr_data_t hdr_data);
int PtlGet(ptl_handle_md_t md_handle, ptl_process_id_t target_id, ptl_pt_index_t pt_index,
	   ptl_ac_index_t ac_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset);
int PtlGetRegion(ptl_handle_md_t md_handle, ptl_size_t local_offset, ptl_size_t length,
		 ptl_process_id_t target_id, ptl_pt_index_t pt_index, ptl_ac_index_t ac_index,
		 ptl_match_bits_t match_bits, ptl_size_t remote_offset);
/* A get, which programs for Cray's systems make so from processes of their own node. */
int PtlMDMDCopy(ptl_handle_md_t md_handle, ptl_process_id_t target_id, ptl_pt_index_t pt_index,
		ptl_ac_index_t ac_index, ptl_match_bits_t match_bits, ptl_size_t remote_offset);
int PtlGetPut(ptl_handle_md_t get_md_handle, ptl_handle_md_t put_md_handle,
	      ptl_process_id_t target_id, ptl_pt_index_t pt_index, ptl_ac_index_t ac_index,
	      ptl_match_bits_t match_bits, ptl_size_t remote_offset, ptl_hdr_data_t hdr_data);
int PtlGetPutRegion(ptl_handle_md_t get_md_handle, ptl_size_t get_local_offset,
		    ptl_handle_md_t put_md_handle, ptl_size_t put_local_offset,
		    ptl_size_t length, ptl_process_id_t target_id, ptl_pt_index_t pt_index,
		    ptl_ac_index_t ac_index, ptl_match_bits_t match_bits,
		    ptl_size_t remote_offset, ptl_hdr_data_t hdr_data);

/* Handles are integers. */
#define PtlHandleIsEqual(a, b) ((a) == (b))

#ifdef __cplusplus
}
#endif

#endif
