/* What gasnet.h and gasnet_tools.h have in common: words for the compiler, thread models. */
#ifndef GASNET_BASIC_H
#define GASNET_BASIC_H

/* First, as it refuses compilers and machines that the system may have no headers for. */
#include "portable_platform.h"
#include "portable_inttypes.h"

#define _STRINGIFY_HELPER(x) #x
#define _STRINGIFY(x) _STRINGIFY_HELPER(x)
#define _CONCAT_HELPER(a, b) a##b
#define _CONCAT(a, b) _CONCAT_HELPER(a, b)

#ifdef __cplusplus
#define GASNETT_EXTERNC extern "C"
#define GASNETT_BEGIN_EXTERNC extern "C" {
#define GASNETT_END_EXTERNC }
#else
#define GASNETT_EXTERNC extern
#define GASNETT_BEGIN_EXTERNC
#define GASNETT_END_EXTERNC
#endif

#define GASNETI_UNUSED __attribute__((__unused__))
#define GASNETI_INLINE_WORDS static __inline__ __attribute__((__unused__))
#define GASNETT_INLINE(name) static __inline__ __attribute__((__always_inline__, __unused__))
#define GASNETT_NEVER_INLINE(name, declarator) __attribute__((__noinline__)) declarator
#define GASNETT_RESTRICT __restrict__
#define GASNETT_NORETURN __attribute__((__noreturn__))
#define GASNETT_NORETURNP(function)
#define GASNETT_MALLOC __attribute__((__malloc__))
#define GASNETT_MALLOCP(function)
#define GASNETT_PURE __attribute__((__pure__))
#define GASNETT_PUREP(function)
#define GASNETT_CONST __attribute__((__const__))
#define GASNETT_CONSTP(function)
#define GASNETT_HOT __attribute__((__hot__))
#define GASNETT_COLD __attribute__((__cold__))
#define GASNETT_USED __attribute__((__used__))
#define GASNETT_DEPRECATED __attribute__((__deprecated__))
#define GASNETT_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#define GASNETT_FORMAT_PRINTF(name, format, first, declarator) \
    __attribute__((__format__(__printf__, format, first))) declarator
#define GASNETT_FORMAT_PRINTF_FUNCPTR(name, format, first, declarator) \
    __attribute__((__format__(__printf__, format, first))) declarator
#define GASNETT_PREDICT_TRUE(expression) __builtin_expect(!!(expression), 1)
#define GASNETT_PREDICT_FALSE(expression) __builtin_expect(!!(expression), 0)
#define GASNETT_PREFETCH_READ_HINT(p) __builtin_prefetch((p), 0)
#define GASNETT_PREFETCH_WRITE_HINT(p) __builtin_prefetch((p), 1)
#define GASNETT_CURRENT_FUNCTION __func__
/* Words that tools look for in a program's file. */
#define GASNETT_IDENT(name, text)                                  \
    GASNETT_EXTERNC char volatile name[] __attribute__((__weak__)); \
    __attribute__((__used__)) char volatile name[] = text

#ifndef PREDICT_TRUE
#define PREDICT_TRUE(expression) GASNETT_PREDICT_TRUE(expression)
#endif
#ifndef PREDICT_FALSE
#define PREDICT_FALSE(expression) GASNETT_PREDICT_FALSE(expression)
#endif
#ifndef if_pf
#define if_pf(condition) if (GASNETT_PREDICT_FALSE(condition))
#endif
#ifndef if_pt
#define if_pt(condition) if (GASNETT_PREDICT_TRUE(condition))
#endif

/* Words of GASNet's own that clients use, from here on. */
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
/* Legion takes their addresses, for the sake of compilers that warn of functions that nobody uses. */
static __inline__ __attribute__((__unused__)) void _gasneti_threadkey_init(void) {}
static __inline__ __attribute__((__unused__)) void _gasnett_trace_printf_noop(void) {}

/* 64 bits, or a pointer, as two arguments of a message, and back. */
#define GASNETI_MAKEWORD(high, low) ((uint64_t)(uint32_t)(high) << 32 | (uint32_t)(low))
#define GASNETI_HIWORD(whole) ((uint32_t)((uint64_t)(whole) >> 32))
#define GASNETI_LOWORD(whole) ((uint32_t)(uint64_t)(whole))

/* Which GASNet's headers have from its configuration, and programs use. */
#ifndef SIZEOF_INT
#define SIZEOF_INT 4
#endif
#ifndef SIZEOF_LONG
#define SIZEOF_LONG 8
#endif
#ifndef SIZEOF_VOID_P
#define SIZEOF_VOID_P 8
#endif
#ifndef SIZEOF_SIZE_T
#define SIZEOF_SIZE_T 8
#endif

#ifndef HAVE_PTHREAD_H
#define HAVE_PTHREAD_H 1
#endif

#if defined(GASNET_DEBUG) && defined(GASNET_NDEBUG)
#error "define one of GASNET_DEBUG and GASNET_NDEBUG"
#elif defined(GASNET_DEBUG)
#undef GASNET_DEBUG
#define GASNET_DEBUG 1
#define GASNETI_DEBUG_NAME debug
#else
#undef GASNET_NDEBUG
#define GASNET_NDEBUG 1
#define GASNETI_DEBUG_NAME nodebug
#endif

/* Several client threads may be in the tools at one time. */
#if defined(GASNET_PAR) || defined(GASNET_PARSYNC) || defined(GASNETT_THREAD_SAFE)
#undef GASNETT_THREAD_SAFE
#define GASNETT_THREAD_SAFE 1
#define GASNETI_UNUSED_UNLESS_THREADS
#else
#define GASNETI_UNUSED_UNLESS_THREADS GASNETI_UNUSED
#endif

#define GASNETI_RELEASE_MAJOR 1
#define GASNETI_RELEASE_MINOR 20
#define GASNETI_RELEASE_PATCH 0

#define GASNETT_PAGESIZE 4096
#define GASNETT_PAGESHIFT 12
#define GASNETT_CACHE_LINE_BYTES 64
#define GASNETI_MAX_THREADS 256

#if defined(__x86_64__)
#define GASNETI_ARCH_NAME "x86_64"
#elif defined(__aarch64__)
#define GASNETI_ARCH_NAME "aarch64"
#else
#define GASNETI_ARCH_NAME "unknown"
#endif
#define GASNETT_SYSTEM_TUPLE GASNETI_ARCH_NAME "-unknown-linux-gnu"
#define GASNETT_SYSTEM_NAME "localhost"
#define GASNETT_CONFIGURE_ARGS ""

#define GASNETI_TOOLS_STRING \
    "PTR=64bit," _STRINGIFY(GASNETI_DEBUG_NAME) ",timers_native,membars_native,atomics_native,atomic32_native,atomic64_native"

#endif
