/* Debug output of programs: a stream and formats of printf. */
#ifndef PORTOLAN_P3_DEBUG_H
#define PORTOLAN_P3_DEBUG_H

#include <inttypes.h>
#include <stdio.h>

#include "../p3api/debug.h"

/* A program's own stream; the library writes nothing to it. */
static FILE *p3_out __attribute__((unused));

/* A size, match bits, a sequence number, any handle; nid and pid, after a blank. */
#define FMT_SZ_T "%" PRIu64
#define FMT_MBITS_T "%#" PRIx64
#define FMT_SEQ_T "%" PRIu32
#define FMT_HDL_T "%#" PRIx32
#define FMT_NIDPID " nid %" PRIu32 " pid %" PRIu32

#endif
