/* Assertions of the C tests: what fails is said with its line, and the rank ends with status 1. */
#ifndef PORTOLAN_TESTS_CHECK_H
#define PORTOLAN_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <portals3.h>
#include <p3rt/p3rt.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
				#condition); \
			exit(1); \
		} \
	} while (0)

/* A call gives this code. */
#define GIVES(code, call) \
	do { \
		int got_ = (call); \
		if (got_ != (code)) { \
			fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, \
				PtlErrorStr((unsigned)got_), PtlErrorStr((unsigned)(code))); \
			exit(1); \
		} \
	} while (0)

#define OK(call) GIVES(PTL_OK, call)

static const ptl_process_id_t anyone = {0xffffffffu, 0xffffffffu};

/* The interface under test: that of the job, or, where PORTOLAN_TEST_SELF is set, the one that reaches
 * only its own process. */
static inline ptl_interface_t tested_interface(void)
{
	return getenv("PORTOLAN_TEST_SELF") ? PTL_IFACE_SELF : PTL_IFACE_DEFAULT;
}

/* Initialises the library and opens the interface under test. */
static inline ptl_handle_ni_t open_default(void)
{
	int max_interfaces = 0;
	ptl_handle_ni_t ni;

	OK(PtlInit(&max_interfaces));
	CHECK(max_interfaces >= 1);
	OK(PtlSetRank(PTL_INVALID_HANDLE, (unsigned)-1, (unsigned)-1));
	OK(PtlNIInit(tested_interface(), PTL_PID_ANY, NULL, NULL, &ni));
	return ni;
}

/* A descriptor of `length` bytes at `start` without limit, with its events in `eq`. */
static inline ptl_md_t describe(void *start, ptl_size_t length, unsigned options,
				ptl_handle_eq_t eq)
{
	ptl_md_t md;

	memset(&md, 0, sizeof md);
	md.start = start;
	md.length = length;
	md.threshold = PTL_MD_THRESH_INF;
	md.options = options;
	md.user_ptr = start;
	md.eq_handle = eq;
	return md;
}

/* The next event of a queue, which must be of this kind and not a failure. */
static inline ptl_event_t expect(ptl_handle_eq_t eq, ptl_event_kind_t kind)
{
	ptl_event_t event;

	OK(PtlEQWait(eq, &event));
	if (event.type != kind) {
		fprintf(stderr, "event %s, not %s\n", PtlEventKindStr(event.type),
			PtlEventKindStr(kind));
		exit(1);
	}
	CHECK(event.ni_fail_type == PTL_NI_OK);
	return event;
}

#endif
