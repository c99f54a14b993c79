/* gasnet.h: GASNet-1 (specification 1.8) over Portals: RDMA verbs, a simulated Cray SeaStar, shared memory.
 *
 * A program defines GASNET_SEQ, GASNET_PARSYNC or GASNET_PAR and links libgasnet-portals-seq, -parsync or -par; a
 * program of another model does not link. All its objects are compiled for the same memory: GASNET_SEGMENT_FAST, which is
 * what they get without a word, GASNET_SEGMENT_LARGE or GASNET_SEGMENT_EVERYTHING. With GASNET_DEBUG defined each call
 * says where it stands, and more is checked; that too is one for all objects.
 */
#ifndef _GASNET_H
#define _GASNET_H
#define _INCLUDED_GASNET_H
#ifdef GASNET_TOOLS_H
#error "include gasnet.h before gasnet_tools.h"
#endif

#if defined(GASNET_SEQ) + defined(GASNET_PARSYNC) + defined(GASNET_PAR) != 1
#error "define exactly one of GASNET_SEQ, GASNET_PARSYNC and GASNET_PAR"
#endif
#if defined(GASNET_SEGMENT_FAST) + defined(GASNET_SEGMENT_LARGE) + defined(GASNET_SEGMENT_EVERYTHING) > 1
#error "define at most one of GASNET_SEGMENT_FAST, GASNET_SEGMENT_LARGE and GASNET_SEGMENT_EVERYTHING"
#endif
#ifdef GASNET_SEQ
#undef GASNET_SEQ
#define GASNET_SEQ 1
#define GASNETI_MODEL seq
#define GASNETI_MODEL_STR "SEQ"
#elif defined(GASNET_PARSYNC)
#undef GASNET_PARSYNC
#define GASNET_PARSYNC 1
#define GASNETI_MODEL parsync
#define GASNETI_MODEL_STR "PARSYNC"
#else
#undef GASNET_PAR
#define GASNET_PAR 1
#define GASNETI_MODEL par
#define GASNETI_MODEL_STR "PAR"
#endif

#include "gasnet_basic.h"
#include <stdarg.h>
#include <stdlib.h>
/* Nothing here needs these; programs rely on GASNet's header for them. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#ifndef GASNET_SEQ
#include <pthread.h>
#endif

GASNETT_BEGIN_EXTERNC

/* ---- what this is ---------------------------------------------------------------------------- */

#ifdef GASNET_SEGMENT_EVERYTHING
#undef GASNET_SEGMENT_EVERYTHING
#define GASNET_SEGMENT_EVERYTHING 1
#define GASNETI_SEGMENT everything
#define GASNETI_SEGMENT_STR "EVERYTHING"
#elif defined(GASNET_SEGMENT_LARGE)
#undef GASNET_SEGMENT_LARGE
#define GASNET_SEGMENT_LARGE 1
#define GASNETI_SEGMENT large
#define GASNETI_SEGMENT_STR "LARGE"
#else
#undef GASNET_SEGMENT_FAST
#define GASNET_SEGMENT_FAST 1
#define GASNETI_SEGMENT fast
#define GASNETI_SEGMENT_STR "FAST"
#endif
#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNET_VERSION GASNET_SPEC_VERSION_MAJOR
#define GASNET_RELEASE_VERSION_MAJOR GASNETI_RELEASE_MAJOR
#define GASNET_RELEASE_VERSION_MINOR GASNETI_RELEASE_MINOR
#define GASNET_RELEASE_VERSION_PATCH GASNETI_RELEASE_PATCH
#define GASNET_CONDUIT_PORTALS 1
#define GASNET_CONDUIT_NAME PORTALS
#define GASNET_CONDUIT_NAME_STR "PORTALS"
#define GASNET_CORE_NAME PORTALS
#define GASNET_CORE_NAME_STR "PORTALS"
#define GASNET_CORE_VERSION 1.5
#define GASNET_CORE_VERSION_STR "1.5"
#define GASNET_EXTENDED_NAME PORTALS
#define GASNET_EXTENDED_NAME_STR "PORTALS"
#define GASNET_EXTENDED_VERSION 1.5
#define GASNET_EXTENDED_VERSION_STR "1.5"
#define GASNET_MAXNODES 65535
#define GASNET_ALIGNED_SEGMENTS 0
#define GASNET_PSHM 0
#define GASNET_PAGESIZE GASNETT_PAGESIZE
#define GASNET_CONFIG_STRING                                                                      \
    "RELEASE=" _STRINGIFY(GASNETI_RELEASE_MAJOR) "." _STRINGIFY(GASNETI_RELEASE_MINOR) "."        \
    _STRINGIFY(GASNETI_RELEASE_PATCH) ",SPEC=" _STRINGIFY(GASNET_SPEC_VERSION_MAJOR) "."          \
    _STRINGIFY(GASNET_SPEC_VERSION_MINOR) ",CONDUIT=PORTALS(PORTALS-" GASNET_CORE_VERSION_STR      \
    "/PORTALS-" GASNET_EXTENDED_VERSION_STR "),THREADMODEL=" GASNETI_MODEL_STR ",SEGMENT="        \
    GASNETI_SEGMENT_STR ","                                                                         \
    "PTR=64bit,noalign,nopshm," _STRINGIFY(GASNETI_DEBUG_NAME) ",trace,stats,nodebugmalloc,"  \
    "nosrclines,timers_native,membars_native,atomics_native,atomic32_native,atomic64_native"

GASNETT_IDENT(gasneti_ident_config, "$GASNetConfig: (" __FILE__ ") " GASNET_CONFIG_STRING " $");
GASNETT_IDENT(gasneti_ident_model, "$GASNetThreadModel: GASNET_" GASNETI_MODEL_STR " $");
GASNETT_IDENT(gasneti_ident_segment, "$GASNetSegment: GASNET_SEGMENT_" GASNETI_SEGMENT_STR " $");
GASNETT_IDENT(gasneti_ident_conduit, "$GASNetConduitName: PORTALS $");
GASNETT_IDENT(gasneti_ident_api, "$GASNetAPIVersion: 1 $");
GASNETT_IDENT(gasneti_ident_trace, "$GASNetTracingEnabled: 1 $");
GASNETT_IDENT(gasneti_ident_stats, "$GASNetStatisticsEnabled: 1 $");

/* ---- constants and types --------------------------------------------------------------------- */

#define GASNET_OK 0
#define GASNET_ERR_NOT_INIT 10001
#define GASNET_ERR_RESOURCE 10002
#define GASNET_ERR_BAD_ARG 10003
#define GASNET_ERR_NOT_READY 10004
#define GASNET_ERR_BARRIER_MISMATCH 10005

#define GASNET_BARRIERFLAG_ANONYMOUS 1
#define GASNET_BARRIERFLAG_MISMATCH 2
#define GASNET_BARRIERFLAG_IMAGES 4
#define GASNET_BARRIERFLAG_UNNAMED (8 | GASNET_BARRIERFLAG_ANONYMOUS)

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2

typedef uint32_t gasnet_node_t;
typedef uint8_t gasnet_handler_t;
typedef int32_t gasnet_handlerarg_t;
typedef void *gasnet_token_t;
typedef void *gasnet_handle_t;
typedef void *gasnet_threadinfo_t;
typedef uintptr_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T 8
typedef struct gasneti_valget *gasnet_valget_handle_t;
#define GASNET_INVALID_HANDLE ((gasnet_handle_t)0)

typedef struct {
    gasnet_handler_t index; /* 128 to 255; 0: chosen by gasnet_attach, which stores it here */
#if defined(GASNET_USE_STRICT_PROTOTYPES) && GASNET_USE_STRICT_PROTOTYPES
    void *fnptr;
#else
    void (*fnptr)();
#endif
} gasnet_handlerentry_t;

typedef struct {
    void *addr;
    uintptr_t size;
} gasnet_seginfo_t;

typedef struct {
    gasnet_node_t host;
    gasnet_node_t supernode;
} gasnet_nodeinfo_t;

#ifndef GASNETI_MEMVEC
#define GASNETI_MEMVEC 1
typedef struct {
    void *addr;
    size_t len;
} gasnet_memvec_t;
#endif

/* ---- the job --------------------------------------------------------------------------------- */

/* The library has the body of gasnet_init under a name that says what it was built for. */
#define GASNETI_BUILD_NAME(what) \
    _CONCAT(_CONCAT(_CONCAT(what, _portals_), _CONCAT(GASNETI_SEGMENT, _)),     \
            _CONCAT(_CONCAT(GASNETI_MODEL, _), GASNETI_DEBUG_NAME))
#define gasneti_init_built GASNETI_BUILD_NAME(gasneti_init)
#define gasneti_linked GASNETI_BUILD_NAME(gasneti_linked)
/* The largest segment to offer, bytes; 0 if the program does not say. It may define this, or assign to it before
 * gasnet_init; in C++, which has no tentative definitions, one object must define it before it is assigned to. */
#ifdef __cplusplus
extern uint64_t gasnet_max_segsize __attribute__((__weak__));
#define GASNETI_MAX_SEGSIZE (&gasnet_max_segsize ? gasnet_max_segsize : 0)
#else
uint64_t gasnet_max_segsize __attribute__((__common__));
#define GASNETI_MAX_SEGSIZE gasnet_max_segsize
#endif
int gasneti_init_built(int *argc, char ***argv, uint64_t max_segsize);
GASNETI_INLINE_WORDS int gasnet_init(int *argc, char ***argv) {
    return gasneti_init_built(argc, argv, GASNETI_MAX_SEGSIZE);
}
extern const int gasneti_linked;
/* An object that was compiled for another library does not link, even one without gasnet_init. */
__attribute__((__used__, __unused__)) static const int *const gasneti_links_with = &gasneti_linked;
/* Nor do objects that differ: each defines the same symbol in a section group whose name says what the object was compiled
 * for. Of groups of one name linkers keep one; of two names both, and then the symbol is there twice. Objects that are
 * optimised at link time meet in the assembler, which takes the first of one name. It is a note, since mold says nothing of
 * symbols in sections that --gc-sections drops. */
#define GASNETI_OBJECTS_DIFFER "gasnet_objects_differ_in_thread_model_segment_or_debug"
#define GASNETI_OBJECTS_ARE _STRINGIFY(GASNETI_BUILD_NAME(gasneti_objects))
__asm__(".ifndef .L" GASNETI_OBJECTS_ARE "\n"
        ".set .L" GASNETI_OBJECTS_ARE ", 1\n"
        ".pushsection .note.gasnet,\"aG\",%note," GASNETI_OBJECTS_ARE ",comdat\n"
        ".globl " GASNETI_OBJECTS_DIFFER "\n"
        ".hidden " GASNETI_OBJECTS_DIFFER "\n"
        ".balign 4\n" GASNETI_OBJECTS_DIFFER ":\n"
        ".long 7, 0, 1\n" /* lengths of name and contents, type */
        ".asciz \"GASNet\"\n"
        ".balign 4\n"
        ".popsection\n"
        ".endif\n");

int gasnet_attach(gasnet_handlerentry_t *table, int count, uintptr_t segsize, uintptr_t minheapoffset);
void gasnet_exit(int code) __attribute__((__noreturn__));
gasnet_node_t gasnet_mynode(void);
gasnet_node_t gasnet_nodes(void);
uintptr_t gasnet_getMaxLocalSegmentSize(void);
uintptr_t gasnet_getMaxGlobalSegmentSize(void);
int gasnet_getSegmentInfo(gasnet_seginfo_t *table, int count);
int gasnet_getNodeInfo(gasnet_nodeinfo_t *table, int count);
char *gasnet_getenv(const char *name);
int gasnet_set_waitmode(int mode);
const char *gasnet_ErrorName(int code);
const char *gasnet_ErrorDesc(int code);

/* Of the portals-conduit, for programs that measure flow control: credits that a node lends this one; requests to a node that
 * waited for credits, since the start; credits that this node has left to lend; credits that a node gave back to this one. */
int gasnet_send_credits(gasnet_node_t node);
int gasnet_credit_stalls(gasnet_node_t node);
int gasnet_banked_credits(void);
int gasnet_revoked_credits(gasnet_node_t node);

/* What attach calls with the own segment, if a program sets it. */
typedef void (*gasnet_client_attach_hook_t)(void *base, uintptr_t size);
extern gasnet_client_attach_hook_t gasnet_client_attach_hook;

#define GASNET_BEGIN_FUNCTION() GASNETI_UNUSED static const int gasneti_function_begins = 0
gasnet_threadinfo_t gasneti_threadinfo(void);
#define GASNET_GET_THREADINFO() gasneti_threadinfo()
#define GASNET_POST_THREADINFO(info) GASNETI_UNUSED gasnet_threadinfo_t gasneti_posted_threadinfo = (info)

/* In a debug build each call first says where it stands. */
void gasneti_here(const char *file, int line);
#ifdef GASNET_DEBUG
#define GASNETI_CALL(function) (gasneti_here(__FILE__, __LINE__), function)
#else
#define GASNETI_CALL(function) function
#endif

/* ---- active messages ------------------------------------------------------------------------- */

#define gasnet_AMMaxArgs() ((size_t)16)
#define gasnet_AMMaxMedium() ((size_t)1984)
#define gasnet_AMMaxLongRequest() ((size_t)1 << 30)
#ifdef GASNET_SEGMENT_FAST
#define gasnet_AMMaxLongReply() ((size_t)1 << 30)
#else
/* A handler cannot wait until memory is pinned: the payload travels with the message. */
#define gasnet_AMMaxLongReply() ((size_t)1976)
#endif
#define GASNETI_MEDBUF_ALIGNMENT 8

int gasnet_AMPoll(void);
int gasnet_AMGetMsgSource(gasnet_token_t token, gasnet_node_t *source);
/* Waits for something to be handled, as far as the thread model allows; may return early. `steps`: two words of the wait,
 * 0 at first. */
void gasneti_wait_step(uint64_t *steps);

/* Evaluated again after what handlers did, and now and then. */
#define GASNET_BLOCKUNTIL(condition)                                          \
    do {                                                                      \
        uint64_t gasneti_steps_[2] = { 0, 0 };                                \
        while (!(condition)) GASNETI_CALL(gasneti_wait_step)(gasneti_steps_); \
        __atomic_thread_fence(__ATOMIC_ACQUIRE);                              \
    } while (0)

#include "gasnet_am.h"

typedef struct {
    volatile uint32_t word;
    uint32_t tag;
    void *volatile owner;
    size_t depth;
} gasneti_hsl_lock_t;
/* Programs give the address of `lock` to gasnett_cond_wait. */
typedef struct {
    gasneti_hsl_lock_t lock;
} gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER { { 0, 0x48534c31, 0, 0 } }
void gasnet_hsl_init(gasnet_hsl_t *lock);
void gasnet_hsl_destroy(gasnet_hsl_t *lock);
void gasnet_hsl_lock(gasnet_hsl_t *lock);
void gasnet_hsl_unlock(gasnet_hsl_t *lock);
int gasnet_hsl_trylock(gasnet_hsl_t *lock);
void gasnet_hold_interrupts(void);
void gasnet_resume_interrupts(void);
#if defined(GASNET_SEQ) && defined(GASNET_NDEBUG)
/* One thread, and handlers run on it between its calls: there is nobody to lock out. */
#define gasnet_hsl_lock(l) ((void)(l))
#define gasnet_hsl_unlock(l) ((void)(l))
#define gasnet_hsl_trylock(l) ((void)(l), GASNET_OK)
#endif

/* ---- puts, gets ------------------------------------------------------------------------------ */

void gasnet_put(gasnet_node_t node, void *dest, void *src, size_t nbytes);
void gasnet_get(void *dest, gasnet_node_t node, void *src, size_t nbytes);
void gasnet_put_bulk(gasnet_node_t node, void *dest, void *src, size_t nbytes);
void gasnet_get_bulk(void *dest, gasnet_node_t node, void *src, size_t nbytes);
void gasnet_memset(gasnet_node_t node, void *dest, int value, size_t nbytes);

gasnet_handle_t gasnet_put_nb(gasnet_node_t node, void *dest, void *src, size_t nbytes);
gasnet_handle_t gasnet_get_nb(void *dest, gasnet_node_t node, void *src, size_t nbytes);
gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t node, void *dest, void *src, size_t nbytes);
gasnet_handle_t gasnet_get_nb_bulk(void *dest, gasnet_node_t node, void *src, size_t nbytes);
gasnet_handle_t gasnet_memset_nb(gasnet_node_t node, void *dest, int value, size_t nbytes);

void gasnet_put_nbi(gasnet_node_t node, void *dest, void *src, size_t nbytes);
void gasnet_get_nbi(void *dest, gasnet_node_t node, void *src, size_t nbytes);
void gasnet_put_nbi_bulk(gasnet_node_t node, void *dest, void *src, size_t nbytes);
void gasnet_get_nbi_bulk(void *dest, gasnet_node_t node, void *src, size_t nbytes);
void gasnet_memset_nbi(gasnet_node_t node, void *dest, int value, size_t nbytes);

void gasnet_put_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes);
gasnet_handle_t gasnet_put_nb_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes);
void gasnet_put_nbi_val(gasnet_node_t node, void *dest, gasnet_register_value_t value, size_t nbytes);
gasnet_register_value_t gasnet_get_val(gasnet_node_t node, void *src, size_t nbytes);
gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t node, void *src, size_t nbytes);
gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle);

/* ---- synchronisation ------------------------------------------------------------------------- */

void gasnet_wait_syncnb(gasnet_handle_t handle);
int gasnet_try_syncnb(gasnet_handle_t handle);
int gasnet_try_syncnb_nopoll(gasnet_handle_t handle);
void gasnet_wait_syncnb_some(gasnet_handle_t *handles, size_t count);
int gasnet_try_syncnb_some(gasnet_handle_t *handles, size_t count);
void gasnet_wait_syncnb_all(gasnet_handle_t *handles, size_t count);
int gasnet_try_syncnb_all(gasnet_handle_t *handles, size_t count);
void gasnet_wait_syncnbi_puts(void);
void gasnet_wait_syncnbi_gets(void);
void gasnet_wait_syncnbi_all(void);
int gasnet_try_syncnbi_puts(void);
int gasnet_try_syncnbi_gets(void);
int gasnet_try_syncnbi_all(void);
void gasnet_begin_nbi_accessregion(void);
gasnet_handle_t gasnet_end_nbi_accessregion(void);

/* ---- barriers -------------------------------------------------------------------------------- */

void gasnet_barrier_notify(int id, int flags);
int gasnet_barrier_wait(int id, int flags);
int gasnet_barrier_try(int id, int flags);
int gasnet_barrier(int id, int flags);
int gasnet_barrier_result(int *id);

#ifdef GASNET_DEBUG
#define gasnet_attach(t, n, s, m) GASNETI_CALL(gasnet_attach)(t, n, s, m)
#define gasnet_AMPoll() GASNETI_CALL(gasnet_AMPoll)()
#define gasnet_AMGetMsgSource(t, s) GASNETI_CALL(gasnet_AMGetMsgSource)(t, s)
/* Without arguments: names with a number are macros over these, and C++98 has none of a variable number. */
#define gasnet_AMRequestShort GASNETI_CALL(gasnet_AMRequestShort)
#define gasnet_AMRequestMedium GASNETI_CALL(gasnet_AMRequestMedium)
#define gasnet_AMRequestLong GASNETI_CALL(gasnet_AMRequestLong)
#define gasnet_AMRequestLongAsync GASNETI_CALL(gasnet_AMRequestLongAsync)
#define gasnet_AMReplyShort GASNETI_CALL(gasnet_AMReplyShort)
#define gasnet_AMReplyMedium GASNETI_CALL(gasnet_AMReplyMedium)
#define gasnet_AMReplyLong GASNETI_CALL(gasnet_AMReplyLong)
#define gasnet_hsl_init(l) GASNETI_CALL(gasnet_hsl_init)(l)
#define gasnet_hsl_destroy(l) GASNETI_CALL(gasnet_hsl_destroy)(l)
#define gasnet_hsl_lock(l) GASNETI_CALL(gasnet_hsl_lock)(l)
#define gasnet_hsl_unlock(l) GASNETI_CALL(gasnet_hsl_unlock)(l)
#define gasnet_hsl_trylock(l) GASNETI_CALL(gasnet_hsl_trylock)(l)
#define gasnet_hold_interrupts() GASNETI_CALL(gasnet_hold_interrupts)()
#define gasnet_resume_interrupts() GASNETI_CALL(gasnet_resume_interrupts)()
#define gasnet_put(n, d, s, b) GASNETI_CALL(gasnet_put)(n, d, s, b)
#define gasnet_get(d, n, s, b) GASNETI_CALL(gasnet_get)(d, n, s, b)
#define gasnet_put_bulk(n, d, s, b) GASNETI_CALL(gasnet_put_bulk)(n, d, s, b)
#define gasnet_get_bulk(d, n, s, b) GASNETI_CALL(gasnet_get_bulk)(d, n, s, b)
#define gasnet_memset(n, d, v, b) GASNETI_CALL(gasnet_memset)(n, d, v, b)
#define gasnet_put_nb(n, d, s, b) GASNETI_CALL(gasnet_put_nb)(n, d, s, b)
#define gasnet_get_nb(d, n, s, b) GASNETI_CALL(gasnet_get_nb)(d, n, s, b)
#define gasnet_put_nb_bulk(n, d, s, b) GASNETI_CALL(gasnet_put_nb_bulk)(n, d, s, b)
#define gasnet_get_nb_bulk(d, n, s, b) GASNETI_CALL(gasnet_get_nb_bulk)(d, n, s, b)
#define gasnet_memset_nb(n, d, v, b) GASNETI_CALL(gasnet_memset_nb)(n, d, v, b)
#define gasnet_put_nbi(n, d, s, b) GASNETI_CALL(gasnet_put_nbi)(n, d, s, b)
#define gasnet_get_nbi(d, n, s, b) GASNETI_CALL(gasnet_get_nbi)(d, n, s, b)
#define gasnet_put_nbi_bulk(n, d, s, b) GASNETI_CALL(gasnet_put_nbi_bulk)(n, d, s, b)
#define gasnet_get_nbi_bulk(d, n, s, b) GASNETI_CALL(gasnet_get_nbi_bulk)(d, n, s, b)
#define gasnet_memset_nbi(n, d, v, b) GASNETI_CALL(gasnet_memset_nbi)(n, d, v, b)
#define gasnet_put_val(n, d, v, b) GASNETI_CALL(gasnet_put_val)(n, d, v, b)
#define gasnet_put_nb_val(n, d, v, b) GASNETI_CALL(gasnet_put_nb_val)(n, d, v, b)
#define gasnet_put_nbi_val(n, d, v, b) GASNETI_CALL(gasnet_put_nbi_val)(n, d, v, b)
#define gasnet_get_val(n, s, b) GASNETI_CALL(gasnet_get_val)(n, s, b)
#define gasnet_get_nb_val(n, s, b) GASNETI_CALL(gasnet_get_nb_val)(n, s, b)
#define gasnet_wait_syncnb_valget(h) GASNETI_CALL(gasnet_wait_syncnb_valget)(h)
#define gasnet_wait_syncnb(h) GASNETI_CALL(gasnet_wait_syncnb)(h)
#define gasnet_try_syncnb(h) GASNETI_CALL(gasnet_try_syncnb)(h)
#define gasnet_wait_syncnb_some(h, n) GASNETI_CALL(gasnet_wait_syncnb_some)(h, n)
#define gasnet_try_syncnb_some(h, n) GASNETI_CALL(gasnet_try_syncnb_some)(h, n)
#define gasnet_wait_syncnb_all(h, n) GASNETI_CALL(gasnet_wait_syncnb_all)(h, n)
#define gasnet_try_syncnb_all(h, n) GASNETI_CALL(gasnet_try_syncnb_all)(h, n)
#define gasnet_wait_syncnbi_puts() GASNETI_CALL(gasnet_wait_syncnbi_puts)()
#define gasnet_wait_syncnbi_gets() GASNETI_CALL(gasnet_wait_syncnbi_gets)()
#define gasnet_wait_syncnbi_all() GASNETI_CALL(gasnet_wait_syncnbi_all)()
#define gasnet_try_syncnbi_puts() GASNETI_CALL(gasnet_try_syncnbi_puts)()
#define gasnet_try_syncnbi_gets() GASNETI_CALL(gasnet_try_syncnbi_gets)()
#define gasnet_try_syncnbi_all() GASNETI_CALL(gasnet_try_syncnbi_all)()
#define gasnet_begin_nbi_accessregion() GASNETI_CALL(gasnet_begin_nbi_accessregion)()
#define gasnet_end_nbi_accessregion() GASNETI_CALL(gasnet_end_nbi_accessregion)()
#define gasnet_barrier_notify(i, f) GASNETI_CALL(gasnet_barrier_notify)(i, f)
#define gasnet_barrier_wait(i, f) GASNETI_CALL(gasnet_barrier_wait)(i, f)
#define gasnet_barrier_try(i, f) GASNETI_CALL(gasnet_barrier_try)(i, f)
#define gasnet_barrier(i, f) GASNETI_CALL(gasnet_barrier)(i, f)
#endif

GASNETT_END_EXTERNC

/* Programs use these without including them. */
#include "gasnet_vis.h"
#include "gasnet_coll.h"

#endif
