/* gasnet_tools.h: timers, atomics, fences, threads and queries that programs written for GASNet-1
 * use. A program of tools alone links no library.
 *
 * In a GASNet program gasnet.h comes first.
 */
#ifndef GASNET_TOOLS_H
#define GASNET_TOOLS_H
#define _IN_GASNET_TOOLS_H
#define _INCLUDED_GASNET_TOOLS_H

#include "gasnet_basic.h"

#include <ctype.h>
#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

GASNETT_BEGIN_EXTERNC

#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 6
#define GASNETT_RELEASE_VERSION_MAJOR GASNETI_RELEASE_MAJOR
#define GASNETT_RELEASE_VERSION_MINOR GASNETI_RELEASE_MINOR
#define GASNETT_RELEASE_VERSION_PATCH GASNETI_RELEASE_PATCH
#ifdef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_MODEL PAR
#else
#define GASNETT_THREAD_MODEL SEQ
#endif
#define GASNETT_CONFIG_STRING                                                       \
    "RELEASE=" _STRINGIFY(GASNETI_RELEASE_MAJOR) "." _STRINGIFY(GASNETI_RELEASE_MINOR) \
    "." _STRINGIFY(GASNETI_RELEASE_PATCH) ",SPEC=" _STRINGIFY(GASNETT_SPEC_VERSION_MAJOR) \
    "." _STRINGIFY(GASNETT_SPEC_VERSION_MINOR) ",THREADMODEL=" _STRINGIFY(GASNETT_THREAD_MODEL) \
    "," GASNETI_TOOLS_STRING
#define GASNETT_MAX_THREADS GASNETI_MAX_THREADS
#define GASNETT_TENTATIVE_EXTERN extern

/* ---- the system ------------------------------------------------------------------------------ */

/* Functions of the system that <time.h> and its kin hide from a program of strict ISO C, by names of our own. */
typedef struct {
    long seconds, nanoseconds;
} gasneti_instant_t;
int gasneti_clock_gettime(int clock, gasneti_instant_t *at) __asm__("clock_gettime");
int gasneti_gethostname(char *name, size_t room) __asm__("gethostname");
int gasneti_setenv(const char *name, const char *value, int replace) __asm__("setenv");
int gasneti_unsetenv(const char *name) __asm__("unsetenv");
int gasneti_posix_memalign(void **at, size_t alignment, size_t bytes) __asm__("posix_memalign");
int gasneti_strcasecmp(const char *a, const char *b) __asm__("strcasecmp");
int gasneti_snprintf(char *text, size_t room, const char *format, ...) __asm__("snprintf")
    __attribute__((__format__(__printf__, 3, 4)));
int gasneti_vsnprintf(char *text, size_t room, const char *format, va_list values) __asm__("vsnprintf")
    __attribute__((__format__(__printf__, 3, 0)));
/* CLOCK_MONOTONIC and MAP_ANONYMOUS of Linux. */
#define GASNETI_CLOCK_MONOTONIC 1
#define GASNETI_MAP_ANONYMOUS 0x20

/* ---- fences ---------------------------------------------------------------------------------- */

#define gasnett_compiler_fence() __asm__ __volatile__("" ::: "memory")
#define gasnett_local_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define gasnett_local_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define gasnett_local_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
/* The weak ones need order nothing in a program of one thread. */
#ifdef GASNETT_THREAD_SAFE
#define gasnett_weak_mb() gasnett_local_mb()
#define gasnett_weak_wmb() gasnett_local_wmb()
#define gasnett_weak_rmb() gasnett_local_rmb()
#else
#define gasnett_weak_mb() gasnett_compiler_fence()
#define gasnett_weak_wmb() gasnett_compiler_fence()
#define gasnett_weak_rmb() gasnett_compiler_fence()
#endif

GASNETI_INLINE_WORDS void gasnett_spinloop_hint(void) {
#if defined(__x86_64__)
    __asm__ __volatile__("pause" ::: "memory");
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    gasnett_compiler_fence();
#endif
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* Nanoseconds: of the SeaStar model's virtual clock from the return of gasnet_init on, elsewhere and before of
 * CLOCK_MONOTONIC. */
typedef uint64_t gasnett_tick_t;
#define GASNETT_TICK_MIN ((gasnett_tick_t)0)
#define GASNETT_TICK_MAX (~(gasnett_tick_t)0)

/* Where the library has a function that reads the virtual clock; NULL where the clock is the host's. A program of tools
 * alone has no library, unless another of its objects has. */
typedef struct {
    gasnett_tick_t (*now)(void);
} gasneti_virtual_clock_t;
#ifdef _GASNET_H
const gasneti_virtual_clock_t *gasneti_virtual_clock(void);
void gasneti_compute_ns(uint64_t ns);
#define GASNETI_HAS_CLOCK 1
#else
const gasneti_virtual_clock_t *gasneti_virtual_clock(void) __attribute__((__weak__));
void gasneti_compute_ns(uint64_t ns) __attribute__((__weak__));
#define GASNETI_HAS_CLOCK (gasneti_virtual_clock != NULL)
#endif

typedef gasnett_tick_t (*gasneti_ticks_fn_t)(void);
/* What reads the virtual clock; NULL where the clock is the host's. The library is asked once. */
GASNETI_INLINE_WORDS gasneti_ticks_fn_t gasneti_virtual_ticks(void) {
    static const gasneti_virtual_clock_t *found;
    const gasneti_virtual_clock_t *clock = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if_pf (clock == NULL) {
        if (!GASNETI_HAS_CLOCK) return NULL;
        clock = gasneti_virtual_clock();
        __atomic_store_n(&found, clock, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&clock->now, __ATOMIC_ACQUIRE);
}

GASNETI_INLINE_WORDS gasnett_tick_t gasnett_ticks_now(void) {
    gasneti_instant_t at;
    gasneti_ticks_fn_t now = gasneti_virtual_ticks();
    if_pf (now != NULL) return now();
    gasneti_clock_gettime(GASNETI_CLOCK_MONOTONIC, &at);
    return (gasnett_tick_t)at.seconds * 1000000000u + (gasnett_tick_t)at.nanoseconds;
}
#define gasnett_ticks_to_us(ticks) ((uint64_t)(ticks) / 1000u)
#define gasnett_ticks_to_ns(ticks) ((uint64_t)(ticks))

/* Extensions of Portolan, by these macros. Whether the ticks are those of the model's virtual clock now. */
#define GASNETT_HAVE_TICKS_ARE_VIRTUAL 1
GASNETI_INLINE_WORDS int gasnett_ticks_are_virtual(void) {
    return gasneti_virtual_ticks() != NULL;
}
/* The processor of this rank computes for so many nanoseconds of virtual time; where time is not virtual nothing
 * happens. */
#define GASNETT_HAVE_COMPUTE_NS 1
GASNETI_INLINE_WORDS void gasnett_compute_ns(uint64_t ns) {
    if (gasneti_virtual_ticks() != NULL) gasneti_compute_ns(ns);
}

GASNETI_INLINE_WORDS uint64_t gasnett_gettimeofday_us(void) {
    struct timeval at;
    gettimeofday(&at, NULL);
    return (uint64_t)at.tv_sec * 1000000u + (uint64_t)at.tv_usec;
}

/* The shortest step seen between two readings, and the mean cost of one; microseconds. The virtual clock counts
 * nanoseconds, and a reading takes none. */
GASNETI_INLINE_WORDS double gasneti_tick_measure(int overhead) {
    const int READINGS = 1000;
    gasnett_tick_t shortest = GASNETT_TICK_MAX, start = gasnett_ticks_now(), last = start;
    int i;
    if (gasnett_ticks_are_virtual()) return overhead ? 0.0 : 0.001;
    for (i = 0; i < READINGS; i++) {
        gasnett_tick_t next = gasnett_ticks_now();
        if (next > last && next - last < shortest) shortest = next - last;
        last = next;
    }
    return overhead ? (double)(last - start) / (1000.0 * READINGS) : (double)shortest / 1000.0;
}
#define gasnett_tick_granularityus() gasneti_tick_measure(0)
#define gasnett_tick_granularity() gasneti_tick_measure(0)
#define gasnett_tick_overheadus() gasneti_tick_measure(1)
#define gasnett_tick_overhead() gasneti_tick_measure(1)
#define GASNETT_TIMER_CONFIG timers_native

/* ---- atomics --------------------------------------------------------------------------------- */

#define GASNETT_ATOMIC_NONE 0
#define GASNETT_ATOMIC_RMB_PRE 0x01
#define GASNETT_ATOMIC_WMB_PRE 0x02
#define GASNETT_ATOMIC_MB_PRE (GASNETT_ATOMIC_RMB_PRE | GASNETT_ATOMIC_WMB_PRE)
#define GASNETT_ATOMIC_RMB_POST 0x04
#define GASNETT_ATOMIC_WMB_POST 0x08
#define GASNETT_ATOMIC_MB_POST (GASNETT_ATOMIC_RMB_POST | GASNETT_ATOMIC_WMB_POST)
#define GASNETT_ATOMIC_RMB_POST_IF_TRUE 0x10
#define GASNETT_ATOMIC_RMB_POST_IF_FALSE 0x20
#define GASNETT_ATOMIC_REL GASNETT_ATOMIC_WMB_PRE
#define GASNETT_ATOMIC_ACQ GASNETT_ATOMIC_RMB_POST
#define GASNETT_ATOMIC_ACQ_IF_TRUE GASNETT_ATOMIC_RMB_POST_IF_TRUE
#define GASNETT_ATOMIC_ACQ_IF_FALSE GASNETT_ATOMIC_RMB_POST_IF_FALSE

GASNETT_INLINE(gasneti_fence_pre) void gasneti_fence_pre(int flags) {
    if ((flags & GASNETT_ATOMIC_MB_PRE) == GASNETT_ATOMIC_MB_PRE) gasnett_local_mb();
    else if (flags & GASNETT_ATOMIC_WMB_PRE) gasnett_local_wmb();
    else if (flags & GASNETT_ATOMIC_RMB_PRE) gasnett_local_rmb();
}
GASNETT_INLINE(gasneti_fence_post) void gasneti_fence_post(int flags) {
    if ((flags & GASNETT_ATOMIC_MB_POST) == GASNETT_ATOMIC_MB_POST) gasnett_local_mb();
    else if (flags & GASNETT_ATOMIC_WMB_POST) gasnett_local_wmb();
    else if (flags & GASNETT_ATOMIC_RMB_POST) gasnett_local_rmb();
}
GASNETT_INLINE(gasneti_fence_if) void gasneti_fence_if(int result, int flags) {
    gasneti_fence_post(flags);
    if (flags & (result ? GASNETT_ATOMIC_RMB_POST_IF_TRUE : GASNETT_ATOMIC_RMB_POST_IF_FALSE))
        gasnett_local_rmb();
}

/* One family: NAME_t over unsigned TYPE. Without fence flags an operation is atomic and orders
 * nothing else. */
#define GASNETI_ATOMIC_FAMILY(NAME, TYPE)                                                          \
    typedef struct { volatile TYPE value; } NAME##_t;                                              \
    GASNETT_INLINE(NAME##_read) TYPE NAME##_read(NAME##_t const *p, int flags) {                   \
        TYPE value;                                                                                \
        gasneti_fence_pre(flags);                                                                  \
        value = __atomic_load_n(&p->value, __ATOMIC_RELAXED);                                      \
        gasneti_fence_post(flags);                                                                 \
        return value;                                                                              \
    }                                                                                              \
    GASNETT_INLINE(NAME##_set) void NAME##_set(NAME##_t *p, TYPE value, int flags) {               \
        gasneti_fence_pre(flags);                                                                  \
        __atomic_store_n(&p->value, value, __ATOMIC_RELAXED);                                      \
        gasneti_fence_post(flags);                                                                 \
    }                                                                                              \
    GASNETT_INLINE(NAME##_add) TYPE NAME##_add(NAME##_t *p, TYPE by, int flags) {                  \
        TYPE value;                                                                                \
        gasneti_fence_pre(flags);                                                                  \
        value = __atomic_add_fetch(&p->value, by, __ATOMIC_RELAXED);                               \
        gasneti_fence_post(flags);                                                                 \
        return value;                                                                              \
    }                                                                                              \
    GASNETT_INLINE(NAME##_subtract) TYPE NAME##_subtract(NAME##_t *p, TYPE by, int flags) {        \
        return NAME##_add(p, (TYPE)(0 - by), flags);                                               \
    }                                                                                              \
    GASNETT_INLINE(NAME##_increment) void NAME##_increment(NAME##_t *p, int flags) {               \
        (void)NAME##_add(p, 1, flags);                                                             \
    }                                                                                              \
    GASNETT_INLINE(NAME##_decrement) void NAME##_decrement(NAME##_t *p, int flags) {               \
        (void)NAME##_add(p, (TYPE)-1, flags);                                                      \
    }                                                                                              \
    GASNETT_INLINE(NAME##_decrement_and_test)                                                      \
    int NAME##_decrement_and_test(NAME##_t *p, int flags) {                                        \
        int zero;                                                                                  \
        gasneti_fence_pre(flags);                                                                  \
        zero = __atomic_sub_fetch(&p->value, 1, __ATOMIC_RELAXED) == 0;                            \
        gasneti_fence_if(zero, flags);                                                             \
        return zero;                                                                               \
    }                                                                                              \
    GASNETT_INLINE(NAME##_swap) TYPE NAME##_swap(NAME##_t *p, TYPE value, int flags) {             \
        TYPE old;                                                                                  \
        gasneti_fence_pre(flags);                                                                  \
        old = __atomic_exchange_n(&p->value, value, __ATOMIC_RELAXED);                             \
        gasneti_fence_post(flags);                                                                 \
        return old;                                                                                \
    }                                                                                              \
    GASNETT_INLINE(NAME##_compare_and_swap)                                                        \
    int NAME##_compare_and_swap(NAME##_t *p, TYPE expected, TYPE value, int flags) {               \
        int done;                                                                                  \
        gasneti_fence_pre(flags);                                                                  \
        done = __atomic_compare_exchange_n(&p->value, &expected, value, 0, __ATOMIC_RELAXED,       \
                                           __ATOMIC_RELAXED);                                      \
        gasneti_fence_if(done, flags);                                                             \
        return done;                                                                               \
    }

typedef uint32_t gasnett_atomic_val_t;
typedef int32_t gasnett_atomic_sval_t;
GASNETI_ATOMIC_FAMILY(gasnett_atomic, uint32_t)
GASNETI_ATOMIC_FAMILY(gasnett_atomic32, uint32_t)
GASNETI_ATOMIC_FAMILY(gasnett_atomic64, uint64_t)
GASNETI_ATOMIC_FAMILY(gasnett_strongatomic, uint32_t)
GASNETI_ATOMIC_FAMILY(gasnett_strongatomic32, uint32_t)
GASNETI_ATOMIC_FAMILY(gasnett_strongatomic64, uint64_t)
#define gasnett_atomic_init(v) { (v) }
#define gasnett_atomic32_init(v) { (v) }
#define gasnett_atomic64_init(v) { (v) }
#define gasnett_strongatomic_init(v) { (v) }
#define gasnett_strongatomic32_init(v) { (v) }
#define gasnett_strongatomic64_init(v) { (v) }
#define gasnett_atomic_signed(v) ((gasnett_atomic_sval_t)(v))
#define gasnett_strongatomic_signed(v) ((gasnett_atomic_sval_t)(v))
#define GASNETT_ATOMIC_MAX ((gasnett_atomic_val_t)0xffffffffU)
#define GASNETT_ATOMIC_SIGNED_MIN ((gasnett_atomic_sval_t)(-0x7fffffff - 1))
#define GASNETT_ATOMIC_SIGNED_MAX ((gasnett_atomic_sval_t)0x7fffffff)
#define GASNETT_STRONGATOMIC_MAX GASNETT_ATOMIC_MAX
#define GASNETT_HAVE_ATOMIC_CAS 1
#define GASNETT_HAVE_ATOMIC_ADD_SUB 1
#define GASNETT_HAVE_STRONGATOMIC_CAS 1
#define GASNETT_HAVE_STRONGATOMIC_ADD_SUB 1
#define GASNETT_ATOMIC_CONFIG atomics_native
#define GASNETT_ATOMIC32_CONFIG atomic32_native
#define GASNETT_ATOMIC64_CONFIG atomic64_native

/* ---- ends ------------------------------------------------------------------------------------ */

/* A program's own way to print where it is; it defines this one object if it has one. */
typedef struct {
    const char *name;
    int (*fnp)(int);
    int threadsupport;
} gasnett_backtrace_type_t;
extern gasnett_backtrace_type_t gasnett_backtrace_user __attribute__((__weak__));

GASNETI_INLINE_WORDS void gasnett_flush_streams(void) {
    fflush(NULL);
}
GASNETI_INLINE_WORDS void gasnett_close_streams(void) {
    fflush(NULL);
    fclose(stdin);
    fclose(stdout);
    fclose(stderr);
}
GASNETI_INLINE_WORDS GASNETT_NORETURN void gasnett_killmyprocess(int status) {
    fflush(NULL);
    _exit(status);
}
GASNETI_INLINE_WORDS void gasnett_backtrace_init(const char *program) {
    void *here[1];
    (void)program;
    (void)backtrace(here, 1); /* loads what a signal handler could not */
}
/* 0: printed. */
GASNETI_INLINE_WORDS int gasnett_print_backtrace(int fd) {
    const char *wanted = getenv("GASNET_BACKTRACE_TYPE");
    void *frames[64];
    int count;
    if (&gasnett_backtrace_user != NULL && gasnett_backtrace_user.fnp != NULL
        && (wanted == NULL || strstr(wanted, gasnett_backtrace_user.name) != NULL)
        && gasnett_backtrace_user.fnp(fd) == 0)
        return 0;
    count = backtrace(frames, 64);
    backtrace_symbols_fd(frames, count, fd);
    return count > 0 ? 0 : 1;
}
GASNETI_INLINE_WORDS int gasnett_print_backtrace_ifenabled(int fd) {
    const char *enabled = getenv("GASNET_BACKTRACE");
    if (enabled == NULL || strchr("1yY", enabled[0]) == NULL || enabled[0] == '\0') return 1;
    return gasnett_print_backtrace(fd);
}
__attribute__((__noreturn__, __format__(__printf__, 1, 2), __unused__))
static void gasnett_fatalerror(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fflush(NULL);
    fputs("*** FATAL ERROR: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    fflush(NULL);
    va_end(values);
    gasnett_print_backtrace_ifenabled(2);
    abort();
}
#define GASNETI_EXPAND_STRING(text) text
#define gasnett_current_loc __FILE__ ":" _STRINGIFY(__LINE__)
#define gasnett_freezeForDebuggerNow(flag, name) \
    do { *(flag) = 1; while (*(flag)) sleep(1); } while (0)
#define gasnett_freezeForDebuggerErr() ((void)0)

typedef void (*gasnett_sighandlerfn_t)(int);
GASNETI_INLINE_WORDS gasnett_sighandlerfn_t gasnett_reghandler(int number, gasnett_sighandlerfn_t to) {
    return signal(number, to);
}

/* ---- the machine ----------------------------------------------------------------------------- */

GASNETI_INLINE_WORDS int gasnett_cpu_count(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}
/* Bytes of memory; 0 when that is not known. */
GASNETI_INLINE_WORDS uint64_t gasnett_getPhysMemSz(int must_know) {
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && bytes > 0) return (uint64_t)pages * (uint64_t)bytes;
    if (must_know) gasnett_fatalerror("the size of physical memory is not known");
    return 0;
}
GASNETI_INLINE_WORDS const char *gasnett_gethostname(void) {
    static char name[256];
    if (name[0] == '\0') {
        char found[sizeof name];
        if (gasneti_gethostname(found, sizeof found - 1) != 0) strcpy(found, "unknown");
        found[sizeof found - 1] = '\0';
        memcpy(name, found, sizeof name);
    }
    return name;
}
GASNETI_INLINE_WORDS void gasnett_set_affinity(int rank) {
    /* The launcher and the system place processes. */
    (void)rank;
}
GASNETI_INLINE_WORDS int gasnett_isLittleEndian(void) {
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}
#define gasnett_sched_yield() ((void)sched_yield())
GASNETI_INLINE_WORDS void *gasnett_mmap(uintptr_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | GASNETI_MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) gasnett_fatalerror("cannot map %lu bytes", (unsigned long)bytes);
    return at;
}
/* 1: the soft limit is the hard one. */
GASNETI_INLINE_WORDS int gasnett_maximize_rlimit(int which, const char *name) {
    struct rlimit limit;
    (void)name;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0) return 0;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)which, &limit) == 0;
}
GASNETI_INLINE_WORDS void gasnett_maximize_rlimits(void) {
    gasnett_maximize_rlimit(RLIMIT_DATA, "RLIMIT_DATA");
    gasnett_maximize_rlimit(RLIMIT_STACK, "RLIMIT_STACK");
    gasnett_maximize_rlimit(RLIMIT_AS, "RLIMIT_AS");
}
GASNETI_INLINE_WORDS const char *gasnett_performance_warning_str(void) {
#ifdef GASNET_DEBUG
    return "        debugging\n";
#else
    return "";
#endif
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef pthread_mutex_t gasnett_mutex_t;
/* Its own mutex, so that one can wait with an HSL, which is no mutex of the system. */
typedef struct {
    pthread_cond_t cond;
    pthread_mutex_t mutex;
} gasnett_cond_t;
/* A macro, so that a program that asks for an older POSIX, without this type, compiles. */
#define gasnett_rwlock_t pthread_rwlock_t
#define GASNETT_RWLOCK_INITIALIZER PTHREAD_RWLOCK_INITIALIZER
#define GASNETT_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define GASNETT_COND_INITIALIZER { PTHREAD_COND_INITIALIZER, PTHREAD_MUTEX_INITIALIZER }
#ifdef GASNETT_THREAD_SAFE
#define gasnett_mutex_init(m) ((void)pthread_mutex_init((m), NULL))
#define gasnett_mutex_destroy(m) ((void)pthread_mutex_destroy(m))
#define gasnett_mutex_destroy_ignoreerr(m) pthread_mutex_destroy(m)
#define gasnett_mutex_lock(m) ((void)pthread_mutex_lock(m))
#define gasnett_mutex_trylock(m) pthread_mutex_trylock(m)
#define gasnett_mutex_unlock(m) ((void)pthread_mutex_unlock(m))
#define gasnett_rwlock_init(l) ((void)pthread_rwlock_init((l), NULL))
#define gasnett_rwlock_destroy(l) ((void)pthread_rwlock_destroy(l))
#define gasnett_rwlock_rdlock(l) ((void)pthread_rwlock_rdlock(l))
#define gasnett_rwlock_wrlock(l) ((void)pthread_rwlock_wrlock(l))
#define gasnett_rwlock_tryrdlock(l) pthread_rwlock_tryrdlock(l)
#define gasnett_rwlock_trywrlock(l) pthread_rwlock_trywrlock(l)
#define gasnett_rwlock_unlock(l) ((void)pthread_rwlock_unlock(l))
GASNETI_INLINE_WORDS void gasnett_cond_init(gasnett_cond_t *c) {
    pthread_cond_init(&c->cond, NULL);
    pthread_mutex_init(&c->mutex, NULL);
}
GASNETI_INLINE_WORDS void gasnett_cond_destroy(gasnett_cond_t *c) {
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mutex);
}
/* Whoever has seen a waiter give up its lock finds it waiting here. */
GASNETI_INLINE_WORDS void gasnett_cond_signal(gasnett_cond_t *c) {
    pthread_mutex_lock(&c->mutex);
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->mutex);
}
GASNETI_INLINE_WORDS void gasnett_cond_broadcast(gasnett_cond_t *c) {
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->mutex);
}
GASNETI_INLINE_WORDS void gasneti_cond_wait_mutex(gasnett_cond_t *c, gasnett_mutex_t *held) {
    pthread_mutex_lock(&c->mutex);
    pthread_mutex_unlock(held);
    pthread_cond_wait(&c->cond, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    pthread_mutex_lock(held);
}
#ifdef GASNET_HSL_INITIALIZER
GASNETI_INLINE_WORDS void gasneti_cond_wait_hsl(gasnett_cond_t *c, gasneti_hsl_lock_t *held) {
    gasnet_hsl_t *hsl = (gasnet_hsl_t *)held;
    pthread_mutex_lock(&c->mutex);
    (gasnet_hsl_unlock)(hsl);
    pthread_cond_wait(&c->cond, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    (gasnet_hsl_lock)(hsl);
}
#endif
/* Gives up a mutex, or the `lock` of an HSL, and waits for a signal; may wake without one. */
#if defined(__cplusplus) && defined(GASNET_HSL_INITIALIZER)
extern "C++" {
static __inline__ void gasnett_cond_wait(gasnett_cond_t *c, gasnett_mutex_t *held) { gasneti_cond_wait_mutex(c, held); }
static __inline__ void gasnett_cond_wait(gasnett_cond_t *c, gasneti_hsl_lock_t *held) { gasneti_cond_wait_hsl(c, held); }
}
#elif defined(GASNET_HSL_INITIALIZER)
#define gasnett_cond_wait(c, m)                                                                     \
    __builtin_choose_expr(__builtin_types_compatible_p(__typeof__(m), gasneti_hsl_lock_t *),        \
                          gasneti_cond_wait_hsl, gasneti_cond_wait_mutex)((c), (m))
#else
#define gasnett_cond_wait(c, m) gasneti_cond_wait_mutex((c), (m))
#endif
#else
#define gasnett_mutex_init(m) ((void)(m))
#define gasnett_mutex_destroy(m) ((void)(m))
#define gasnett_mutex_destroy_ignoreerr(m) ((void)(m), 0)
#define gasnett_mutex_lock(m) ((void)(m))
#define gasnett_mutex_trylock(m) ((void)(m), 0)
#define gasnett_mutex_unlock(m) ((void)(m))
#define gasnett_rwlock_init(l) ((void)(l))
#define gasnett_rwlock_destroy(l) ((void)(l))
#define gasnett_rwlock_rdlock(l) ((void)(l))
#define gasnett_rwlock_wrlock(l) ((void)(l))
#define gasnett_rwlock_tryrdlock(l) ((void)(l), 0)
#define gasnett_rwlock_trywrlock(l) ((void)(l), 0)
#define gasnett_rwlock_unlock(l) ((void)(l))
#define gasnett_cond_init(c) ((void)(c))
#define gasnett_cond_destroy(c) ((void)(c))
#define gasnett_cond_signal(c) ((void)(c))
#define gasnett_cond_broadcast(c) ((void)(c))
#define gasnett_cond_wait(c, m) gasnett_fatalerror("waiting on a condition in a program of one thread")
#endif
#define gasnett_mutex_assertlocked(m) ((void)(m))
#define gasnett_mutex_assertunlocked(m) ((void)(m))
#define gasnett_rwlock_assertlocked(l) ((void)(l))
#define gasnett_rwlock_assertrdlocked(l) ((void)(l))
#define gasnett_rwlock_assertwrlocked(l) ((void)(l))
#define gasnett_rwlock_assertunlocked(l) ((void)(l))

/* A pointer for each thread; NULL at first. */
#define GASNETT_THREADKEY_DECLARE(key) extern __thread void *gasneti_threadkey_##key
#define GASNETT_THREADKEY_DEFINE(key) __thread void *gasneti_threadkey_##key
#define gasnett_threadkey_init(key) ((void)0)
#define gasnett_threadkey_get(key) (gasneti_threadkey_##key)
#define gasnett_threadkey_set(key, value) ((void)(gasneti_threadkey_##key = (void *)(value)))
#define gasnett_threadkey_get_noinit(key) gasnett_threadkey_get(key)
#define gasnett_threadkey_set_noinit(key, value) gasnett_threadkey_set(key, value)

/* ---- text and numbers ------------------------------------------------------------------------ */

/* A number with an optional sign, fraction and unit: T, G, M, K (powers of 1024) or B. Without a
 * unit it counts `unit` each; `unit` 0 is for numbers that are no amounts of memory. */
GASNETI_INLINE_WORDS int64_t gasnett_parse_int(const char *text, uint64_t unit) {
    char *end;
    double fraction;
    int64_t whole;
    while (isspace((unsigned char)*text)) text++;
    if (*text == '\0') return 0;
    errno = 0;
    whole = strtol(text, &end, (text[strspn(text, "+-")] == '0'
                                 && (text[strspn(text, "+-") + 1] | 0x20) == 'x') ? 16 : 10);
    if (end == text) gasnett_fatalerror("\"%s\" is not a number", text);
    fraction = (double)whole;
    if (*end == '.') fraction = strtod(text, &end);
    while (isspace((unsigned char)*end)) end++;
    if (unit != 0 || *end != '\0') switch (toupper((unsigned char)*end)) {
        case 'T': unit = (uint64_t)1 << 40; break;
        case 'G': unit = (uint64_t)1 << 30; break;
        case 'M': unit = (uint64_t)1 << 20; break;
        case 'K': unit = (uint64_t)1 << 10; break;
        case 'B': unit = 1; break;
        case '\0': break;
        default: gasnett_fatalerror("\"%s\" is not a number", text);
    }
    if (unit == 0) unit = 1;
    if (fraction == (double)whole) {
        if (__builtin_mul_overflow(whole, unit, &whole)) return fraction < 0 ? INT64_MIN : INT64_MAX;
        return whole;
    }
    fraction *= (double)unit;
    if (fraction >= -(double)INT64_MIN) return INT64_MAX;
    return fraction <= (double)INT64_MIN ? INT64_MIN : (int64_t)fraction;
}
/* The shortest text that gasnett_parse_int reads back; as an amount of memory it has a unit. */
GASNETI_INLINE_WORDS char *gasnett_format_number(int64_t value, char *text, size_t room, int is_mem) {
    static const char unit[] = "TGMK";
    const char *sign = value < 0 ? "-" : "";
    uint64_t magnitude = value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value;
    int i;
    if (!is_mem) {
        gasneti_snprintf(text, room, "%s%lu", sign, (unsigned long)magnitude);
        return text;
    }
    for (i = 0; i < 4; i++) {
        uint64_t one = (uint64_t)1 << (40 - 10 * i);
        if (magnitude >= one && magnitude % one == 0) {
            gasneti_snprintf(text, room, "%s%lu %cB", sign, (unsigned long)(magnitude / one), unit[i]);
            return text;
        }
    }
    gasneti_snprintf(text, room, "%s%lu B", sign, (unsigned long)magnitude);
    return text;
}

GASNETI_INLINE_WORDS uint64_t gasnett_checksum(const void *data, int count) {
    const uint8_t *at = (const uint8_t *)data;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    int i;
    for (i = 0; i < count; i++) sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Bytes that are zero. */
GASNETI_INLINE_WORDS size_t gasnett_count0s(const void *data, size_t count) {
    const uint8_t *at = (const uint8_t *)data;
    size_t zeros = 0, i;
    for (i = 0; i < count; i++) zeros += at[i] == 0;
    return zeros;
}
GASNETI_INLINE_WORDS size_t gasnett_count0s_copy(void *to, const void *from, size_t count) {
    memcpy(to, from, count);
    return gasnett_count0s(to, count);
}
GASNETI_INLINE_WORDS int gasnett_count0s_uint32_t(uint32_t value) {
    return (int)gasnett_count0s(&value, sizeof value);
}
GASNETI_INLINE_WORDS int gasnett_count0s_uint64_t(uint64_t value) {
    return (int)gasnett_count0s(&value, sizeof value);
}
GASNETI_INLINE_WORDS int gasnett_count0s_uintptr_t(uintptr_t value) {
    return (int)gasnett_count0s(&value, sizeof value);
}

/* ---- environment ----------------------------------------------------------------------------- */

/* Every rank is started with the environment of its launcher. */
GASNETI_INLINE_WORDS char *gasnett_getenv(const char *name) {
    return getenv(name);
}
GASNETI_INLINE_WORDS void gasnett_setenv(const char *name, const char *value) {
    if (gasneti_setenv(name, value, 1) != 0) gasnett_fatalerror("cannot set %s", name);
}
GASNETI_INLINE_WORDS void gasnett_unsetenv(const char *name) {
    gasneti_unsetenv(name);
}
GASNETI_INLINE_WORDS int gasnett_verboseenv(void) {
    const char *value = getenv("GASNET_VERBOSEENV");
    return value != NULL && (value[0] == '1' || value[0] == 'y' || value[0] == 'Y');
}
GASNETI_INLINE_WORDS void gasnett_envstr_display(const char *name, const char *value, int is_default) {
    if (gasnett_verboseenv())
        fprintf(stderr, "ENV parameter: %s = %-20s%s\n", name, value ? value : "", is_default ? "   (default)" : "");
}
GASNETI_INLINE_WORDS void gasnett_envint_display(const char *name, int64_t value, int is_default, int is_mem) {
    char text[64];
    gasnett_envstr_display(name, gasnett_format_number(value, text, sizeof text, is_mem), is_default);
}
GASNETI_INLINE_WORDS void gasnett_envdbl_display(const char *name, double value, int is_default) {
    char text[64];
    gasneti_snprintf(text, sizeof text, "%g", value);
    gasnett_envstr_display(name, text, is_default);
}
GASNETI_INLINE_WORDS char *gasnett_getenv_withdefault(const char *name, const char *otherwise) {
    char *value = getenv(name);
    gasnett_envstr_display(name, value ? value : otherwise, value == NULL);
    return value ? value : (char *)otherwise;
}
GASNETI_INLINE_WORDS int gasnett_getenv_yesno_withdefault(const char *name, int otherwise) {
    const char *value = getenv(name);
    int answer = otherwise;
    if (value != NULL && value[0] != '\0') {
        if (gasneti_strcasecmp(value, "1") == 0 || gasneti_strcasecmp(value, "y") == 0 || gasneti_strcasecmp(value, "yes") == 0) answer = 1;
        else if (gasneti_strcasecmp(value, "0") == 0 || gasneti_strcasecmp(value, "n") == 0 || gasneti_strcasecmp(value, "no") == 0) answer = 0;
        else gasnett_fatalerror("%s=\"%s\" is not yes or no", name, value);
    }
    gasnett_envstr_display(name, answer ? "YES" : "NO", value == NULL);
    return answer;
}
GASNETI_INLINE_WORDS int64_t gasnett_getenv_int_withdefault(const char *name, int64_t otherwise, uint64_t unit) {
    const char *value = getenv(name);
    int64_t number = value ? gasnett_parse_int(value, unit) : otherwise;
    gasnett_envint_display(name, number, value == NULL, unit != 0);
    return number;
}
GASNETI_INLINE_WORDS double gasnett_getenv_dbl_withdefault(const char *name, double otherwise) {
    const char *value = getenv(name);
    double number = otherwise;
    if (value != NULL) {
        char *end;
        number = strtod(value, &end);
        if (end == value || *end != '\0') gasnett_fatalerror("%s=\"%s\" is not a number", name, value);
    }
    gasnett_envdbl_display(name, number, value == NULL);
    return number;
}

/* ---- memory ---------------------------------------------------------------------------------- */

GASNETI_INLINE_WORDS void *gasnett_malloc_aligned(size_t alignment, size_t bytes) {
    void *at = NULL;
    if (alignment < sizeof(void *)) alignment = sizeof(void *);
    if (gasneti_posix_memalign(&at, alignment, bytes ? bytes : 1) != 0)
        gasnett_fatalerror("cannot allocate %lu bytes", (unsigned long)bytes);
    return at;
}
/* No function: programs define `free` as something else before they include this. */
#define gasnett_free_aligned(at) free(at)
#define gasnett_debug_malloc(bytes) malloc(bytes)
#define gasnett_debug_calloc(count, bytes) calloc((count), (bytes))
#define gasnett_debug_realloc(at, bytes) realloc((at), (bytes))
#define gasnett_debug_free(at) free(at)
#define gasnett_debug_strdup(text) strdup(text)
#define gasnett_debug_strndup(text, count) strndup((text), (count))
#define gasnett_debug_memcheck(at) ((void)(at))
#define gasnett_debug_memcheck_one() ((void)0)
#define gasnett_debug_memcheck_all() ((void)0)

#define GASNETT_FAST_ALIGNED_MEMCPY(to, from, bytes) memcpy((to), (from), (bytes))
#define GASNETT_FAST_UNALIGNED_MEMCPY(to, from, bytes) memcpy((to), (from), (bytes))

/* A register value to memory of 1 to 8 bytes; and from there, which ends the function that says so. With <gasnet.h>. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define GASNETI_VALUE_BYTES(value, bytes) ((char *)&(value))
#else
#define GASNETI_VALUE_BYTES(value, bytes) ((char *)&(value) + sizeof(value) - (bytes))
#endif
#define GASNETT_VALUE_ASSIGN(to, value, bytes)                              \
    do {                                                                    \
        gasnet_register_value_t gasneti_value_ = (value);                   \
        memcpy((to), GASNETI_VALUE_BYTES(gasneti_value_, bytes), (bytes));  \
    } while (0)
#define GASNETT_VALUE_RETURN(from, bytes)                                    \
    do {                                                                     \
        gasnet_register_value_t gasneti_value_ = 0;                          \
        memcpy(GASNETI_VALUE_BYTES(gasneti_value_, bytes), (from), (bytes)); \
        return gasneti_value_;                                               \
    } while (0)

/* ---- trace and statistics -------------------------------------------------------------------- */

/* In a GASNet program the library writes them (GASNET_TRACEFILE, GASNET_STATSFILE); a program of tools alone has none. */
#ifdef _GASNET_H
int gasneti_trace_enabled(char category);
void gasneti_trace_text(const char *text, int always);
void gasneti_stats_text(const char *text);
const char *gasneti_trace_mask(int statistics);
void gasneti_trace_set_mask(const char *mask, int statistics);
int gasneti_trace_local(void);
void gasneti_trace_set_local(int yes);
void gasneti_trace_set_line(const char *file, unsigned int line);
void gasneti_trace_get_line(const char **file, unsigned int *line);
void gasneti_trace_freeze_line(int by);

typedef void (*gasneti_printer_t)(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
int gasneti_stats_at_end(void (*callback)(gasneti_printer_t), gasneti_printer_t printer);

__attribute__((__format__(__printf__, 1, 2), __unused__))
static void gasneti_trace_message(const char *format, ...) {
    char text[1024];
    va_list values;
    if (!gasneti_trace_enabled('H')) return;
    va_start(values, format);
    gasneti_vsnprintf(text, sizeof text, format, values);
    va_end(values);
    gasneti_trace_text(text, 0);
}
__attribute__((__format__(__printf__, 1, 2), __unused__))
static void gasneti_trace_message_always(const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    gasneti_vsnprintf(text, sizeof text, format, values);
    va_end(values);
    gasneti_trace_text(text, 1);
}
__attribute__((__format__(__printf__, 1, 2), __unused__))
static void gasneti_stats_message(const char *format, ...) {
    char text[1024];
    va_list values;
    va_start(values, format);
    gasneti_vsnprintf(text, sizeof text, format, values);
    va_end(values);
    gasneti_stats_text(text);
}
#define GASNETT_TRACE_ENABLED gasneti_trace_enabled('H')
#define GASNETT_TRACE_PRINTF gasneti_trace_message
#define GASNETT_TRACE_PRINTF_FORCE gasneti_trace_message_always
#define GASNETT_TRACE_GETMASK() gasneti_trace_mask(0)
#define GASNETT_TRACE_SETMASK(mask) gasneti_trace_set_mask((mask), 0)
#define GASNETT_TRACE_GET_TRACELOCAL() gasneti_trace_local()
#define GASNETT_TRACE_SET_TRACELOCAL(value) gasneti_trace_set_local(value)
#define GASNETT_TRACE_SETSOURCELINE(file, line) gasneti_trace_set_line((const char *)(file), (unsigned int)(line))
#define GASNETT_TRACE_GETSOURCELINE(file, line) gasneti_trace_get_line((file), (line))
#define GASNETT_TRACE_FREEZESOURCELINE() gasneti_trace_freeze_line(1)
#define GASNETT_TRACE_UNFREEZESOURCELINE() gasneti_trace_freeze_line(-1)
#define GASNETT_STATS_INIT(callback) gasneti_stats_at_end((callback), gasneti_stats_message)
#define GASNETT_STATS_GETMASK() gasneti_trace_mask(1)
#define GASNETT_STATS_SETMASK(mask) gasneti_trace_set_mask((mask), 1)
#define GASNETT_STATS_PRINTF gasneti_stats_message
#define GASNETT_STATS_PRINTF_FORCE gasneti_stats_message
#else
__attribute__((__format__(__printf__, 1, 2), __unused__))
static void gasneti_trace_nothing(const char *format, ...) {
    (void)format;
}
#define GASNETT_TRACE_ENABLED 0
#define GASNETT_TRACE_PRINTF gasneti_trace_nothing
#define GASNETT_TRACE_PRINTF_FORCE gasneti_trace_nothing
#define GASNETT_TRACE_GETMASK() ""
#define GASNETT_TRACE_SETMASK(mask) ((void)(mask))
#define GASNETT_TRACE_GET_TRACELOCAL() 0
#define GASNETT_TRACE_SET_TRACELOCAL(value) ((void)(value))
#define GASNETT_TRACE_SETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_GETSOURCELINE(file, line) ((void)0)
#define GASNETT_TRACE_FREEZESOURCELINE() ((void)0)
#define GASNETT_TRACE_UNFREEZESOURCELINE() ((void)0)
#define GASNETT_STATS_INIT(callback) 0
#define GASNETT_STATS_GETMASK() ""
#define GASNETT_STATS_SETMASK(mask) ((void)(mask))
#define GASNETT_STATS_PRINTF gasneti_trace_nothing
#define GASNETT_STATS_PRINTF_FORCE gasneti_trace_nothing
#endif

GASNETT_END_EXTERNC

#undef _IN_GASNET_TOOLS_H
#endif
