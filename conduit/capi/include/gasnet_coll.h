/* gasnet_coll.h: collectives (the drafts of GASNet-1). */
#ifndef GASNET_COLL_H
#define GASNET_COLL_H
#define _GASNET_COLL_H

#ifndef _GASNET_H
#error "include gasnet.h first"
#endif

GASNETT_BEGIN_EXTERNC

#define GASNET_COLL_IN_NOSYNC (1 << 0)
#define GASNET_COLL_IN_MYSYNC (1 << 1)
#define GASNET_COLL_IN_ALLSYNC (1 << 2)
#define GASNET_COLL_OUT_NOSYNC (1 << 3)
#define GASNET_COLL_OUT_MYSYNC (1 << 4)
#define GASNET_COLL_OUT_ALLSYNC (1 << 5)
#define GASNET_COLL_SYNC_FLAG_MASK 0x3f
#define GASNET_COLL_SINGLE (1 << 6)
#define GASNET_COLL_LOCAL (1 << 7)
#define GASNET_COLL_AGGREGATE (1 << 8)
#define GASNET_COLL_FIXED_THREADS_PER_NODE (1 << 9)
#define GASNET_COLL_DST_IN_SEGMENT (1 << 10)
#define GASNET_COLL_SRC_IN_SEGMENT (1 << 11)
#define GASNET_COLL_REDUCE_OP_SUM (1 << 12)
#define GASNET_COLL_REDUCE_OP_MAX (1 << 13)
#define GASNET_COLL_REDUCE_OP_MIN (1 << 14)
#define GASNET_COLL_REDUCE_OP_CUSTOM (1 << 15)
#define GASNET_COLL_INCLUSIVE_SCAN (1 << 16)
#define GASNET_COLL_EXCLUSIVE_SCAN (1 << 17)
#define GASNET_COLL_DISABLE_AUTOTUNE (1 << 18)
#define GASNET_COLL_NO_IMAGES (1 << 19)
/* Of a registered function. */
#define GASNET_COLL_AMSAFE (1 << 0)
#define GASNET_COLL_NONCOMM (1 << 1)

/* A thread that takes part; those of a node have successive numbers. */
typedef uint32_t gasnet_image_t;
typedef struct gasneti_coll_op *gasnet_coll_handle_t;
#define GASNET_COLL_INVALID_HANDLE ((gasnet_coll_handle_t)0)
typedef struct gasneti_team *gasnet_team_handle_t;
#define GASNET_TEAM_ALL ((gasnet_team_handle_t)1)
/* Names of the layer below, which programs use: Shray, pygas. */
typedef gasnet_team_handle_t gasnete_coll_team_t;
#define gasnete_coll_team_all GASNET_TEAM_ALL
#define gasnete_coll_team_size(team) gasnet_coll_team_size(team)
#define gasnete_coll_team_rank2node(team, rank) gasnet_coll_team_rank2node(team, rank)
#define gasnete_coll_team_node2rank(team, node) gasnet_coll_team_node2rank(team, node)
typedef gasnet_handlerarg_t gasnet_coll_fn_handle_t;
typedef void (*gasnet_coll_reduce_fn_t)(void *results, size_t result_count, const void *left_operands,
                                        size_t left_count, const void *right_operands, size_t elem_size, int flags,
                                        int arg);
typedef struct {
    gasnet_coll_reduce_fn_t fnptr;
    unsigned int flags;
} gasnet_coll_fn_entry_t;

/* Every image calls it; `images` has how many each node has, or is NULL for one each. */
void gasnet_coll_init(const gasnet_image_t images[], gasnet_image_t my_image, gasnet_coll_fn_entry_t fn_tbl[],
                      size_t fn_count, int init_flags);

gasnet_node_t gasnet_coll_team_rank2node(gasnet_team_handle_t team, gasnet_image_t rank);
gasnet_image_t gasnet_coll_team_node2rank(gasnet_team_handle_t team, gasnet_node_t node);
gasnet_image_t gasnet_coll_team_size(gasnet_team_handle_t team);
/* Members of equal color make a team, in the order of relrank. `clientdata` does not matter. */
gasnet_team_handle_t gasnet_coll_team_split(gasnet_team_handle_t parent, gasnet_node_t color, gasnet_node_t relrank,
                                            void *clientdata);

int gasnet_coll_try_sync(gasnet_coll_handle_t handle);
int gasnet_coll_try_sync_some(gasnet_coll_handle_t *handles, size_t count);
int gasnet_coll_try_sync_all(gasnet_coll_handle_t *handles, size_t count);
void gasnet_coll_wait_sync(gasnet_coll_handle_t handle);
void gasnet_coll_wait_sync_some(gasnet_coll_handle_t *handles, size_t count);
void gasnet_coll_wait_sync_all(gasnet_coll_handle_t *handles, size_t count);

void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_result(gasnet_team_handle_t team, int *id);

void gasnet_coll_broadcast(gasnet_team_handle_t team,
    void *dst, gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team,
    void *dst, gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
void gasnet_coll_broadcastM(gasnet_team_handle_t team,
    void *const dstlist[], gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_broadcastM_nb(gasnet_team_handle_t team,
    void *const dstlist[], gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
void gasnet_coll_scatter(gasnet_team_handle_t team,
    void *dst, gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_scatter_nb(gasnet_team_handle_t team,
    void *dst, gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
void gasnet_coll_scatterM(gasnet_team_handle_t team,
    void *const dstlist[], gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_scatterM_nb(gasnet_team_handle_t team,
    void *const dstlist[], gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
void gasnet_coll_gather(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_gather_nb(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *src, size_t nbytes, int flags);
void gasnet_coll_gatherM(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *const srclist[], size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_gatherM_nb(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *const srclist[], size_t nbytes, int flags);
void gasnet_coll_gather_all(gasnet_team_handle_t team,
    void *dst, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team,
    void *dst, void *src, size_t nbytes, int flags);
void gasnet_coll_gather_allM(gasnet_team_handle_t team,
    void *const dstlist[], void *const srclist[], size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_gather_allM_nb(gasnet_team_handle_t team,
    void *const dstlist[], void *const srclist[], size_t nbytes, int flags);
void gasnet_coll_exchange(gasnet_team_handle_t team,
    void *dst, void *src, size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_exchange_nb(gasnet_team_handle_t team,
    void *dst, void *src, size_t nbytes, int flags);
void gasnet_coll_exchangeM(gasnet_team_handle_t team,
    void *const dstlist[], void *const srclist[], size_t nbytes, int flags);
gasnet_coll_handle_t gasnet_coll_exchangeM_nb(gasnet_team_handle_t team,
    void *const dstlist[], void *const srclist[], size_t nbytes, int flags);
void gasnet_coll_reduce(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *src, size_t src_blksz, size_t src_offset,
    size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
gasnet_coll_handle_t gasnet_coll_reduce_nb(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *src, size_t src_blksz, size_t src_offset,
    size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
void gasnet_coll_reduceM(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *const srclist[], size_t src_blksz, size_t src_offset,
    size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
gasnet_coll_handle_t gasnet_coll_reduceM_nb(gasnet_team_handle_t team,
    gasnet_image_t dstimage, void *dst, void *const srclist[], size_t src_blksz, size_t src_offset,
    size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
void gasnet_coll_scan(gasnet_team_handle_t team,
    void *dst, size_t dst_blksz, size_t dst_offset, void *src,
    size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
gasnet_coll_handle_t gasnet_coll_scan_nb(gasnet_team_handle_t team,
    void *dst, size_t dst_blksz, size_t dst_offset, void *src,
    size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
void gasnet_coll_scanM(gasnet_team_handle_t team,
    void *const dstlist[], size_t dst_blksz, size_t dst_offset, void *const srclist[],
    size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);
gasnet_coll_handle_t gasnet_coll_scanM_nb(gasnet_team_handle_t team,
    void *const dstlist[], size_t dst_blksz, size_t dst_offset, void *const srclist[],
    size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);

/* Tuning: operations have one algorithm each, so these do nothing. */
typedef enum {
    GASNET_COLL_BROADCAST_OP,
    GASNET_COLL_BROADCASTM_OP,
    GASNET_COLL_SCATTER_OP,
    GASNET_COLL_SCATTERM_OP,
    GASNET_COLL_GATHER_OP,
    GASNET_COLL_GATHERM_OP,
    GASNET_COLL_GATHER_ALL_OP,
    GASNET_COLL_GATHER_ALLM_OP,
    GASNET_COLL_EXCHANGE_OP,
    GASNET_COLL_EXCHANGEM_OP,
    GASNET_COLL_REDUCE_OP,
    GASNET_COLL_REDUCEM_OP,
    GASNET_COLL_NUM_COLL_OPTYPES
} gasnet_coll_optype_t;
void gasnet_coll_loadTuningState(const char *filename, gasnet_team_handle_t team);
void gasnet_coll_dumpTuningState(const char *filename, gasnet_team_handle_t team);
void gasnet_coll_dumpProfile(const char *filename, gasnet_team_handle_t team);
void gasnet_coll_set_tree_kind(gasnet_team_handle_t team, int tree_type, int fanout, gasnet_coll_optype_t optype);
void gasnet_coll_set_dissem_limit(gasnet_team_handle_t team, size_t limit, gasnet_coll_optype_t optype);
int gasnet_coll_get_num_tree_classes(gasnet_team_handle_t team, gasnet_coll_optype_t optype);

#ifdef GASNET_DEBUG
#define gasnet_coll_init(a, b, c, d, e) GASNETI_CALL(gasnet_coll_init)(a, b, c, d, e)
#define gasnet_coll_team_rank2node(a, b) GASNETI_CALL(gasnet_coll_team_rank2node)(a, b)
#define gasnet_coll_team_node2rank(a, b) GASNETI_CALL(gasnet_coll_team_node2rank)(a, b)
#define gasnet_coll_team_size(a) GASNETI_CALL(gasnet_coll_team_size)(a)
#define gasnet_coll_team_split(a, b, c, d) GASNETI_CALL(gasnet_coll_team_split)(a, b, c, d)
#define gasnet_coll_try_sync(a) GASNETI_CALL(gasnet_coll_try_sync)(a)
#define gasnet_coll_try_sync_some(a, b) GASNETI_CALL(gasnet_coll_try_sync_some)(a, b)
#define gasnet_coll_try_sync_all(a, b) GASNETI_CALL(gasnet_coll_try_sync_all)(a, b)
#define gasnet_coll_wait_sync(a) GASNETI_CALL(gasnet_coll_wait_sync)(a)
#define gasnet_coll_wait_sync_some(a, b) GASNETI_CALL(gasnet_coll_wait_sync_some)(a, b)
#define gasnet_coll_wait_sync_all(a, b) GASNETI_CALL(gasnet_coll_wait_sync_all)(a, b)
#define gasnet_coll_barrier_notify(a, b, c) GASNETI_CALL(gasnet_coll_barrier_notify)(a, b, c)
#define gasnet_coll_barrier_wait(a, b, c) GASNETI_CALL(gasnet_coll_barrier_wait)(a, b, c)
#define gasnet_coll_barrier_try(a, b, c) GASNETI_CALL(gasnet_coll_barrier_try)(a, b, c)
#define gasnet_coll_barrier(a, b, c) GASNETI_CALL(gasnet_coll_barrier)(a, b, c)
#define gasnet_coll_barrier_result(a, b) GASNETI_CALL(gasnet_coll_barrier_result)(a, b)
#define gasnet_coll_broadcast(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_broadcast)(a, b, c, d, e, f)
#define gasnet_coll_broadcast_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_broadcast_nb)(a, b, c, d, e, f)
#define gasnet_coll_broadcastM(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_broadcastM)(a, b, c, d, e, f)
#define gasnet_coll_broadcastM_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_broadcastM_nb)(a, b, c, d, e, f)
#define gasnet_coll_scatter(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_scatter)(a, b, c, d, e, f)
#define gasnet_coll_scatter_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_scatter_nb)(a, b, c, d, e, f)
#define gasnet_coll_scatterM(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_scatterM)(a, b, c, d, e, f)
#define gasnet_coll_scatterM_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_scatterM_nb)(a, b, c, d, e, f)
#define gasnet_coll_gather(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_gather)(a, b, c, d, e, f)
#define gasnet_coll_gather_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_gather_nb)(a, b, c, d, e, f)
#define gasnet_coll_gatherM(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_gatherM)(a, b, c, d, e, f)
#define gasnet_coll_gatherM_nb(a, b, c, d, e, f) GASNETI_CALL(gasnet_coll_gatherM_nb)(a, b, c, d, e, f)
#define gasnet_coll_gather_all(a, b, c, d, e) GASNETI_CALL(gasnet_coll_gather_all)(a, b, c, d, e)
#define gasnet_coll_gather_all_nb(a, b, c, d, e) GASNETI_CALL(gasnet_coll_gather_all_nb)(a, b, c, d, e)
#define gasnet_coll_gather_allM(a, b, c, d, e) GASNETI_CALL(gasnet_coll_gather_allM)(a, b, c, d, e)
#define gasnet_coll_gather_allM_nb(a, b, c, d, e) GASNETI_CALL(gasnet_coll_gather_allM_nb)(a, b, c, d, e)
#define gasnet_coll_exchange(a, b, c, d, e) GASNETI_CALL(gasnet_coll_exchange)(a, b, c, d, e)
#define gasnet_coll_exchange_nb(a, b, c, d, e) GASNETI_CALL(gasnet_coll_exchange_nb)(a, b, c, d, e)
#define gasnet_coll_exchangeM(a, b, c, d, e) GASNETI_CALL(gasnet_coll_exchangeM)(a, b, c, d, e)
#define gasnet_coll_exchangeM_nb(a, b, c, d, e) GASNETI_CALL(gasnet_coll_exchangeM_nb)(a, b, c, d, e)
#define gasnet_coll_reduce(a, b, c, d, e, f, g, h, i, j, k) GASNETI_CALL(gasnet_coll_reduce)(a, b, c, d, e, f, g, h, i, j, k)
#define gasnet_coll_reduce_nb(a, b, c, d, e, f, g, h, i, j, k) GASNETI_CALL(gasnet_coll_reduce_nb)(a, b, c, d, e, f, g, h, i, j, k)
#define gasnet_coll_reduceM(a, b, c, d, e, f, g, h, i, j, k) GASNETI_CALL(gasnet_coll_reduceM)(a, b, c, d, e, f, g, h, i, j, k)
#define gasnet_coll_reduceM_nb(a, b, c, d, e, f, g, h, i, j, k) GASNETI_CALL(gasnet_coll_reduceM_nb)(a, b, c, d, e, f, g, h, i, j, k)
#define gasnet_coll_scan(a, b, c, d, e, f, g, h, i, j, k, l) GASNETI_CALL(gasnet_coll_scan)(a, b, c, d, e, f, g, h, i, j, k, l)
#define gasnet_coll_scan_nb(a, b, c, d, e, f, g, h, i, j, k, l) GASNETI_CALL(gasnet_coll_scan_nb)(a, b, c, d, e, f, g, h, i, j, k, l)
#define gasnet_coll_scanM(a, b, c, d, e, f, g, h, i, j, k, l) GASNETI_CALL(gasnet_coll_scanM)(a, b, c, d, e, f, g, h, i, j, k, l)
#define gasnet_coll_scanM_nb(a, b, c, d, e, f, g, h, i, j, k, l) GASNETI_CALL(gasnet_coll_scanM_nb)(a, b, c, d, e, f, g, h, i, j, k, l)
#define gasnet_coll_loadTuningState(a, b) GASNETI_CALL(gasnet_coll_loadTuningState)(a, b)
#define gasnet_coll_dumpTuningState(a, b) GASNETI_CALL(gasnet_coll_dumpTuningState)(a, b)
#define gasnet_coll_dumpProfile(a, b) GASNETI_CALL(gasnet_coll_dumpProfile)(a, b)
#define gasnet_coll_set_tree_kind(a, b, c, d) GASNETI_CALL(gasnet_coll_set_tree_kind)(a, b, c, d)
#define gasnet_coll_set_dissem_limit(a, b, c) GASNETI_CALL(gasnet_coll_set_dissem_limit)(a, b, c)
#define gasnet_coll_get_num_tree_classes(a, b) GASNETI_CALL(gasnet_coll_get_num_tree_classes)(a, b)
#endif

GASNETT_END_EXTERNC

#endif
