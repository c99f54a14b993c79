/* Every call of gasnet_tools.h, the texts of gasnet_vis.h, and what gasnet_coll.h has besides collectives. */
#include <gasnet.h>
#include <gasnet_coll.h>
#include <gasnet_tools.h>
#include <gasnet_vis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"

static void timers(void)
{
	gasnett_tick_t start = gasnett_ticks_now();
	uint64_t day = gasnett_gettimeofday_us();

	gasnett_sched_yield();
	CHECK(gasnett_ticks_now() >= start && gasnett_gettimeofday_us() >= day);
	CHECK(gasnett_ticks_to_ns(5000) == 5000 && gasnett_ticks_to_us(5000) == 5);
	CHECK(gasnett_tick_granularityus() >= 0 && gasnett_tick_granularity() >= 0);
	CHECK(gasnett_tick_overheadus() >= 0 && gasnett_tick_overhead() >= 0);
	CHECK(GASNETT_HAVE_TICKS_ARE_VIRTUAL && GASNETT_HAVE_COMPUTE_NS);
	start = gasnett_ticks_now();
	gasnett_compute_ns(700);
	CHECK(!gasnett_ticks_are_virtual() || gasnett_ticks_now() - start >= 700);
}

static void fences(void)
{
	gasnett_compiler_fence();
	gasnett_local_mb();
	gasnett_local_wmb();
	gasnett_local_rmb();
	gasnett_weak_mb();
	gasnett_weak_wmb();
	gasnett_weak_rmb();
	gasnett_spinloop_hint();
}

#define FAMILY(name)                                                                              \
	do {                                                                                      \
		name##_t a = name##_init(3);                                                      \
		CHECK(name##_read(&a, 0) == 3);                                                   \
		name##_set(&a, 5, GASNETT_ATOMIC_REL);                                            \
		name##_increment(&a, GASNETT_ATOMIC_ACQ);                                         \
		name##_decrement(&a, GASNETT_ATOMIC_MB_PRE | GASNETT_ATOMIC_MB_POST);             \
		CHECK(name##_add(&a, 4, 0) == 9 && name##_subtract(&a, 8, 0) == 1);               \
		CHECK(name##_decrement_and_test(&a, GASNETT_ATOMIC_ACQ_IF_TRUE));                 \
		CHECK(!name##_compare_and_swap(&a, 1, 2, GASNETT_ATOMIC_ACQ_IF_FALSE));           \
		CHECK(name##_compare_and_swap(&a, 0, 7, 0) && name##_swap(&a, 8, 0) == 7);        \
	} while (0)

static void atomics(void)
{
	FAMILY(gasnett_atomic);
	FAMILY(gasnett_atomic32);
	FAMILY(gasnett_atomic64);
	FAMILY(gasnett_strongatomic);
	FAMILY(gasnett_strongatomic32);
	FAMILY(gasnett_strongatomic64);
	CHECK(gasnett_atomic_signed(0xffffffffU) == -1 && gasnett_strongatomic_signed(0xffffffffU) == -1);
}

GASNETT_THREADKEY_DEFINE(key);

static void threads(void)
{
	gasnett_mutex_t mutex = GASNETT_MUTEX_INITIALIZER, other;
	gasnett_cond_t cond = GASNETT_COND_INITIALIZER, another;
	int value;

	static gasnett_rwlock_t shared = GASNETT_RWLOCK_INITIALIZER;
	gasnett_rwlock_t one;

	gasnett_rwlock_init(&one);
	gasnett_rwlock_wrlock(&one);
	gasnett_rwlock_assertwrlocked(&one);
#ifdef GASNETT_THREAD_SAFE
	CHECK(gasnett_rwlock_tryrdlock(&one) != 0 && gasnett_rwlock_trywrlock(&one) != 0);
#endif
	gasnett_rwlock_unlock(&one);
	gasnett_rwlock_assertunlocked(&one);
	gasnett_rwlock_destroy(&one);
	gasnett_rwlock_rdlock(&shared);
	gasnett_rwlock_assertrdlocked(&shared);
	gasnett_rwlock_assertlocked(&shared);
#ifdef GASNETT_THREAD_SAFE
	CHECK(gasnett_rwlock_trywrlock(&shared) != 0);
#endif
	gasnett_rwlock_unlock(&shared);
	CHECK(gasnett_rwlock_trywrlock(&shared) == 0);
	gasnett_rwlock_unlock(&shared);
	CHECK(gasnett_rwlock_tryrdlock(&shared) == 0);
	gasnett_rwlock_unlock(&shared);
	gasnett_mutex_init(&other);
	gasnett_cond_init(&another);
	gasnett_mutex_assertunlocked(&mutex);
	gasnett_mutex_lock(&mutex);
	gasnett_mutex_assertlocked(&mutex);
	gasnett_cond_signal(&cond);
	gasnett_cond_broadcast(&cond);
	gasnett_mutex_unlock(&mutex);
	CHECK(gasnett_mutex_trylock(&other) == 0);
	gasnett_mutex_unlock(&other);
	gasnett_mutex_destroy(&other);
	(void)gasnett_mutex_destroy_ignoreerr(&mutex);
	gasnett_cond_destroy(&another);
	if (0) gasnett_cond_wait(&cond, &mutex);
	gasnett_threadkey_init(key);
	gasnett_threadkey_set(key, &value);
	CHECK(gasnett_threadkey_get(key) == &value);
	gasnett_threadkey_set_noinit(key, NULL);
	CHECK(gasnett_threadkey_get_noinit(key) == NULL);
	CHECK(gasnett_cpu_count() > 0);
	gasnett_set_affinity(0);
}

static gasnet_register_value_t value_of(const void *from, size_t bytes)
{
	GASNETT_VALUE_RETURN(from, bytes);
}

static void values(void)
{
	size_t bytes;
	for (bytes = 1; bytes <= sizeof(gasnet_register_value_t); bytes++) {
		unsigned char to[10];
		gasnet_register_value_t all = (gasnet_register_value_t)UINT64_C(0xfedcba9876543210);
		gasnet_register_value_t mask = ~(gasnet_register_value_t)0 >> (sizeof all - bytes) * 8;
		memset(to, 0x55, sizeof to);
		GASNETT_VALUE_ASSIGN(to + 1, all, bytes);
		CHECK(value_of(to + 1, bytes) == (all & mask) && to[0] == 0x55 && to[bytes + 1] == 0x55);
		if (bytes == 4) {
			uint32_t word;
			memcpy(&word, to + 1, sizeof word);
			CHECK(word == 0x76543210);
		}
	}
	CHECK(MIN(2, 3) == 2 && MAX(2, 3) == 3 && PREDICT_TRUE(1) && !PREDICT_FALSE(0));
	/* Clients take addresses of these. */
	CHECK((void *)_gasneti_threadkey_init != NULL && (void *)_gasnett_trace_printf_noop != NULL);
}

static void halves(void)
{
	const uint64_t all[] = { 0, 1, 0xffffffffu, 0x80000000u, UINT64_C(0xfedcba9876543210) };
	size_t i;
	for (i = 0; i < sizeof all / sizeof *all; i++) {
		/* As signed arguments of messages. */
		int32_t high = (int32_t)GASNETI_HIWORD(all[i]), low = (int32_t)GASNETI_LOWORD(all[i]);
		CHECK(GASNETI_MAKEWORD(high, low) == all[i]);
	}
	CHECK(SIZEOF_INT == sizeof(int) && SIZEOF_LONG == sizeof(long));
	CHECK(SIZEOF_VOID_P == sizeof(void *) && SIZEOF_SIZE_T == sizeof(size_t));
	CHECK((void *)GASNETI_MAKEWORD(GASNETI_HIWORD(&i), GASNETI_LOWORD(&i)) == (void *)&i);
}

static void environment(void)
{
	char text[80];

	gasnett_setenv("GASNET_OF_TEST", "3K");
	CHECK(strcmp(gasnett_getenv("GASNET_OF_TEST"), "3K") == 0);
	CHECK(strcmp(gasnett_getenv_withdefault("GASNET_OF_TEST", "x"), "3K") == 0);
	CHECK(gasnett_getenv_int_withdefault("GASNET_OF_TEST", 1, 1) == 3072);
	gasnett_unsetenv("GASNET_OF_TEST");
	CHECK(gasnett_getenv("GASNET_OF_TEST") == NULL);
	CHECK(gasnett_getenv_dbl_withdefault("GASNET_OF_TEST", 1.5) == 1.5);
	CHECK(gasnett_getenv_yesno_withdefault("GASNET_OF_TEST", 1) == 1);
	CHECK(!gasnett_verboseenv());
	gasnett_envint_display("GASNET_OF_TEST", 1, 1, 0);
	gasnett_envstr_display("GASNET_OF_TEST", "x", 1);
	gasnett_envdbl_display("GASNET_OF_TEST", 1.5, 1);
	CHECK(gasnett_parse_int("0x10", 0) == 16);
	/* What does not fit is the largest that does. */
	CHECK(gasnett_parse_int("8388607.5T", 0) == INT64_MAX - (INT64_C(1) << 39) + 1);
	CHECK(gasnett_parse_int("8388608T", 0) == INT64_MAX && gasnett_parse_int("-8388608T", 0) == INT64_MIN);
	CHECK(gasnett_parse_int("8388608.5T", 0) == INT64_MAX && gasnett_parse_int("-8388609.5T", 1) == INT64_MIN);
	CHECK(strcmp(gasnett_format_number(2048, text, sizeof text, 1), "2 KB") == 0);
}

static void memory(void)
{
	char *aligned = (char *)gasnett_malloc_aligned(64, 100), *p, *mapped;
	char from[4] = { 0, 1, 0, 2 }, to[4];

	CHECK((uintptr_t)aligned % 64 == 0);
	gasnett_free_aligned(aligned);
	p = (char *)gasnett_debug_malloc(8);
	p = (char *)gasnett_debug_realloc(p, 16);
	gasnett_debug_memcheck(p);
	gasnett_debug_memcheck_one();
	gasnett_debug_memcheck_all();
	gasnett_debug_free(p);
	p = (char *)gasnett_debug_calloc(2, 4);
	CHECK(p[7] == 0);
	gasnett_debug_free(p);
	p = (char *)gasnett_debug_strdup("abc");
	gasnett_debug_free(p);
	p = (char *)gasnett_debug_strndup("abc", 2);
	CHECK(strcmp(p, "ab") == 0);
	gasnett_debug_free(p);
	mapped = (char *)gasnett_mmap(GASNETT_PAGESIZE);
	CHECK(mapped != NULL && mapped[0] == 0);
	CHECK(gasnett_count0s(from, 4) == 2 && gasnett_count0s_copy(to, from, 4) == 2 && to[3] == 2);
	CHECK(gasnett_count0s_uint32_t(0xff) == 3 && gasnett_count0s_uint64_t(1) == 7);
	CHECK(gasnett_count0s_uintptr_t(0) == (int)sizeof(uintptr_t));
	CHECK(gasnett_checksum(from, 4) != gasnett_checksum(to, 3));
	CHECK(gasnett_getPhysMemSz(1) > 0);
}

static void handled(int signal)
{
	(void)signal;
}

static void system_calls(void)
{
	gasnett_sighandlerfn_t before;

	CHECK(gasnett_gethostname()[0] != '\0');
	CHECK(gasnett_isLittleEndian() == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__));
	CHECK(gasnett_maximize_rlimit(RLIMIT_STACK, "RLIMIT_STACK") >= 0);
	gasnett_maximize_rlimits();
	(void)gasnett_performance_warning_str();
	before = gasnett_reghandler(SIGUSR1, handled);
	(void)gasnett_reghandler(SIGUSR1, before);
	gasnett_backtrace_init("program");
	CHECK(gasnett_print_backtrace_ifenabled(2) == 1);
	CHECK(gasnett_print_backtrace(2) == 0);
	gasnett_flush_streams();
	gasnett_freezeForDebuggerErr();
	if (0) {
		volatile int flag;

		gasnett_freezeForDebuggerNow(&flag, "flag");
		gasnett_fatalerror("%d", 1);
		gasnett_close_streams();
		gasnett_killmyprocess(1);
	}
}

static void statistics(gasneti_printer_t print)
{
	print("statistics of the program: %d", 42);
}

static void traces(void)
{
	const char *file = "";
	unsigned int line = 0;

	GASNETT_TRACE_SETSOURCELINE(__FILE__, 4711);
	GASNETT_TRACE_GETSOURCELINE(&file, &line);
	CHECK(!GASNETT_TRACE_ENABLED || line == 4711);
	GASNETT_TRACE_FREEZESOURCELINE();
	GASNETT_TRACE_SETSOURCELINE(__FILE__, 1);
	GASNETT_TRACE_UNFREEZESOURCELINE();
	GASNETT_TRACE_PRINTF("a message of the program: %d", 1);
	GASNETT_TRACE_SETMASK("GP");
	GASNETT_TRACE_PRINTF("a message that is %s", "masked");
	GASNETT_TRACE_PRINTF_FORCE("a message that is %s", "forced");
	GASNETT_TRACE_SETMASK("GPSWXBLAICDNH");
	CHECK(strlen(GASNETT_TRACE_GETMASK()) == 13 || !GASNETT_TRACE_ENABLED);
	GASNETT_STATS_SETMASK(GASNETT_STATS_GETMASK());
	GASNETT_TRACE_SET_TRACELOCAL(GASNETT_TRACE_GET_TRACELOCAL());
	(void)GASNETT_STATS_INIT(statistics);
	GASNETT_STATS_PRINTF("another line of the program");
	GASNETT_STATS_PRINTF_FORCE("and one more");
}

static void texts(void)
{
	char memory[16], *text = (char *)malloc(4096);
	gasnet_memvec_t vec[1] = { { memory, 16 } };
	void *list[2] = { memory, memory + 8 };
	size_t strides[1] = { 8 }, count[2] = { 4, 2 };

	CHECK(gasnett_format_memveclist_bufsz(1) < 4096 && gasnett_format_addrlist_bufsz(2) < 4096);
	CHECK(gasnett_format_putvgetv_bufsz(1, 1) < 4096 && gasnett_format_putigeti_bufsz(2, 2) < 4096);
	CHECK(gasnett_format_putsgets_bufsz(1) < 4096 && gasnett_format_strides_bufsz(2) < 4096);
	CHECK(gasnett_format_memveclist(text, 1, vec).totalsz == 16);
	CHECK(gasnett_format_addrlist(text, 2, list, 8).totalsz == 16);
	CHECK(gasnett_format_putvgetv(text, 0, 1, vec, 1, vec) == 16);
	CHECK(gasnett_format_putigeti(text, 0, 2, list, 8, 2, list, 8) == 16);
	gasnett_format_strides(text, 2, count);
	CHECK(gasnett_format_putsgets(text, NULL, 0, memory, strides, memory, strides, count, 1) == 8);
	free(text);
}

int main(int argc, char **argv)
{
	CHECK(gasnet_init(&argc, &argv) == GASNET_OK);
	CHECK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0) == GASNET_OK);
	timers();
	fences();
	atomics();
	threads();
	environment();
	halves();
	values();
	memory();
	system_calls();
	traces();
	texts();
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
