#define _GNU_SOURCE
/* The system's clocks under `portolan run --clock virtual`: differences are those of the interface's clock, sleeps take virtual
 * time, waits end when their time comes, and threads that make no calls have the host's clocks. What is printed is compared
 * with another run. Any number of ranks. */
#include "check.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static ptl_handle_ni_t ni;

static long long nanos(struct timespec at)
{
	return at.tv_sec * SECOND + at.tv_nsec;
}

static long long shown(clockid_t clock)
{
	struct timespec at;

	CHECK(clock_gettime(clock, &at) == 0);
	return nanos(at);
}

static long long of_host(clockid_t clock)
{
	struct timespec at;

	CHECK(syscall(SYS_clock_gettime, clock, &at) == 0);
	return nanos(at);
}

static struct timespec after(clockid_t clock, long long length)
{
	long long at = shown(clock) + length;
	struct timespec then = {.tv_sec = at / SECOND, .tv_nsec = at % SECOND};

	return then;
}

/* Every clock shows what the interface's does. */
static void clocks(void)
{
	static const clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_MONOTONIC_COARSE};
	enum { COUNT = sizeof all / sizeof *all };
	long long before[COUNT], day;
	struct timeval start, end;
	struct timespec get;
	time_t seconds = time(NULL);
	int i;

	CHECK(gettimeofday(&start, NULL) == 0);
	for (i = 0; i < COUNT; i++) before[i] = shown(all[i]);
	OK(PtlNICompute(ni, 1234567000));
	for (i = 0; i < COUNT; i++) CHECK(shown(all[i]) - before[i] == 1234567000);
	CHECK(gettimeofday(&end, NULL) == 0);
	day = (end.tv_sec - start.tv_sec) * 1000000LL + end.tv_usec - start.tv_usec;
	CHECK(day == 1234567);
	CHECK(time(NULL) - seconds == 1 || time(NULL) - seconds == 2);
	CHECK(timespec_get(&get, TIME_UTC) == TIME_UTC && get.tv_sec == time(NULL));
	CHECK(nanos(get) == shown(CLOCK_REALTIME));
	/* What a process has used is the host's to say, and so is what is no clock. */
	CHECK(shown(CLOCK_PROCESS_CPUTIME_ID) < SECOND * 60);
	CHECK(clock_gettime(12345, &get) == -1 && errno == EINVAL);
}

static void took(const char *what, long long before, long long length)
{
	long long passed = shown(CLOCK_MONOTONIC) - before;

	if (passed != length) printf("%s took %lld ns, not %lld\n", what, passed, length);
	CHECK(passed == length);
}

static void sleeps(void)
{
	struct timespec ten = {.tv_nsec = 10000000}, wrong = {.tv_nsec = SECOND}, left = {.tv_sec = 7};
	struct timeval twenty = {.tv_usec = 20000};
	long long before = shown(CLOCK_MONOTONIC);

	CHECK(nanosleep(&ten, &left) == 0);
	took("nanosleep", before, 10000000);
	CHECK(nanosleep(&wrong, NULL) == -1 && errno == EINVAL);
	before = shown(CLOCK_MONOTONIC);
	CHECK(usleep(300) == 0 && sleep(3600) == 0);
	took("sleep", before, 3600 * SECOND + 300000);
	before = shown(CLOCK_MONOTONIC);
	CHECK(poll(NULL, 0, 15) == 0);
	CHECK(select(0, NULL, NULL, NULL, &twenty) == 0 && twenty.tv_usec == 0);
	took("poll and select", before, 35000000);
	before = shown(CLOCK_MONOTONIC);
	ten = after(CLOCK_REALTIME, 5 * SECOND);
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &ten, NULL) == 0);
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &ten, NULL) == 0);
	took("clock_nanosleep", before, 5 * SECOND);
}

/* The host waits for so long too. */
static void deadlines(void)
{
	enum { LENGTH = 20000000 };
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, taken = PTHREAD_MUTEX_INITIALIZER;
	pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
	pthread_condattr_t attributes;
	mtx_t plain;
	cnd_t condition;
	pthread_cond_t real = PTHREAD_COND_INITIALIZER, monotonic;
	struct timespec at;
	sem_t semaphore;
	long long before;

	CHECK(pthread_condattr_init(&attributes) == 0 && pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
	CHECK(pthread_cond_init(&monotonic, &attributes) == 0 && sem_init(&semaphore, 0, 0) == 0);
	CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_lock(&taken) == 0);

	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_REALTIME, LENGTH);
	CHECK(pthread_cond_timedwait(&real, &mutex, &at) == ETIMEDOUT);
	/* A time that has come. */
	CHECK(pthread_cond_timedwait(&real, &mutex, &at) == ETIMEDOUT);
	took("a condition by the real time", before, LENGTH);
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_MONOTONIC, LENGTH);
	CHECK(pthread_cond_timedwait(&monotonic, &mutex, &at) == ETIMEDOUT);
	took("a condition by the monotonic time", before, LENGTH);
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_REALTIME, LENGTH);
	CHECK(sem_timedwait(&semaphore, &at) == -1 && errno == ETIMEDOUT);
	took("a semaphore", before, LENGTH);
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_REALTIME, LENGTH);
	CHECK(pthread_mutex_timedlock(&taken, &at) == ETIMEDOUT);
	took("a lock", before, LENGTH);
	CHECK(mtx_init(&plain, mtx_timed) == thrd_success && cnd_init(&condition) == thrd_success && mtx_lock(&plain) == thrd_success);
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_REALTIME, LENGTH);
	CHECK(cnd_timedwait(&condition, &plain, &at) == thrd_timedout);
	took("a condition of C11", before, LENGTH);
	CHECK(pthread_rwlock_rdlock(&shared) == 0);
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_REALTIME, LENGTH);
	CHECK(pthread_rwlock_timedwrlock(&shared, &at) == ETIMEDOUT);
	took("a lock of readers", before, LENGTH);
#if defined __GLIBC__ && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 30)
	before = shown(CLOCK_MONOTONIC);
	at = after(CLOCK_MONOTONIC, LENGTH);
	CHECK(pthread_rwlock_clockwrlock(&shared, CLOCK_MONOTONIC, &at) == ETIMEDOUT);
	at = after(CLOCK_MONOTONIC, LENGTH);
	CHECK(pthread_mutex_clocklock(&taken, CLOCK_MONOTONIC, &at) == ETIMEDOUT);
	at = after(CLOCK_MONOTONIC, LENGTH);
	CHECK(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &at) == -1 && errno == ETIMEDOUT);
	at = after(CLOCK_MONOTONIC, LENGTH);
	CHECK(pthread_cond_clockwait(&real, &mutex, CLOCK_MONOTONIC, &at) == ETIMEDOUT);
	took("what names its clock", before, 4 * LENGTH);
#endif
	CHECK(sem_post(&semaphore) == 0 && sem_timedwait(&semaphore, &at) == 0);
	/* No time at all. */
	at.tv_nsec = SECOND;
	CHECK(sem_timedwait(&semaphore, &at) == -1 && errno == EINVAL);
}

static void *stranger(void *unused)
{
	long long before = of_host(CLOCK_MONOTONIC), between = shown(CLOCK_MONOTONIC);

	(void)unused;
	CHECK(before <= between && between <= of_host(CLOCK_MONOTONIC));
	return NULL;
}

int main(void)
{
	long long before, last;
	unsigned rank, size;
	pthread_t thread;
	pid_t child;
	int status, i;

	CHECK(shown(CLOCK_MONOTONIC) <= of_host(CLOCK_MONOTONIC));
	before = shown(CLOCK_MONOTONIC);
	ni = open_default();
	OK(PtlGetRank(ni, &rank, &size));
	CHECK(shown(CLOCK_MONOTONIC) >= before);
	clocks();
	sleeps();
	deadlines();
	CHECK(pthread_create(&thread, NULL, stranger, NULL) == 0 && pthread_join(thread, NULL) == 0);
	/* A loop that waits for a time ends. */
	for (before = last = shown(CLOCK_MONOTONIC), i = 0; last - before < 50000; i++) last = shown(CLOCK_MONOTONIC);
	printf("rank %u: %d readings, %lld ns\n", rank, i, last - before);
	child = fork();
	if (child == 0) {
		for (before = shown(CLOCK_MONOTONIC); shown(CLOCK_MONOTONIC) < before + 1000000;) continue;
		_exit(before < last);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	last = shown(CLOCK_MONOTONIC);
	PtlFini();
	CHECK(shown(CLOCK_MONOTONIC) >= last);
	before = shown(CLOCK_MONOTONIC);
	CHECK(usleep(2000) == 0 && shown(CLOCK_MONOTONIC) - before >= 2000000);
	return 0;
}
