/* Threads share two endpoints and their queues: each sends, receives, writes, reads and adds, and takes the ends of all of them.
   Usage: threads SEED ROUNDS [THREADS]. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "chance.h"
#include "side.h"

enum { THREADS = 8, SLICE = 20000, KEY = 3 };

struct operation {
    atomic_bool ended;
    size_t len;
};

static struct side sides[2];
/* The second side, for the first one. */
static fi_addr_t other;
static struct {
    unsigned char slices[THREADS][SLICE];
    uint64_t sum;
} memory;
static size_t rounds;
static uint64_t seed;
static _Atomic uint64_t due;

static void take_one(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    ssize_t got = fi_cq_read(cq, &entry, 1);
    if (got == -FI_EAGAIN) {
        sched_yield();
        return;
    }
    IS(got, 1);
    struct operation *o = entry.op_context;
    if (entry.flags & FI_RECV)
        o->len = entry.len;
    IS(atomic_exchange(&o->ended, true), false);
}

static void await(struct operation *o)
{
    while (!atomic_load(&o->ended))
        take_one(sides[below(2)].cq);
}

/* Makes a call until it is taken. */
#define START(o, call)                                  \
    do {                                                \
        ssize_t begun_;                                 \
        atomic_store(&(o)->ended, false);               \
        while ((begun_ = (call)) == -FI_EAGAIN)         \
            take_one(sides[below(2)].cq);               \
        IS(begun_, 0);                                  \
    } while (0)

static void fill(unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = word();
}

static size_t any_length(void)
{
    return one_in(4) ? below(SLICE + 1) : below(200);
}

static void *thread(void *number)
{
    size_t n = (size_t)number;
    unsigned char *out = malloc(SLICE), *in = malloc(SLICE);
    struct operation sent, received, access;
    chance = seed * THREADS + n;
    for (size_t i = 0; i < rounds; i++) {
        size_t len = any_length();
        uint64_t tag = n << 32 | i;
        struct fid_ep *a = sides[0].ep, *b = sides[1].ep;
        bool late = one_in(2);
        fill(out, len);
        memset(in, 0, SLICE);
        if (!late)
            START(&received, fi_trecv(b, in, SLICE, NULL, FI_ADDR_UNSPEC, tag, 0, &received));
        START(&sent, fi_tsend(a, out, len, NULL, other, tag, &sent));
        if (late)
            START(&received, fi_trecv(b, in, SLICE, NULL, FI_ADDR_UNSPEC, tag, 0, &received));
        await(&received);
        await(&sent);
        IS(received.len, len);
        IS(memcmp(in, out, len), 0);
        /* Its own slice, which it reads back. */
        uint64_t at = n * SLICE;
        len = 1 + below(SLICE);
        fill(out, len);
        struct iovec part = {out, len};
        struct fi_rma_iov there = {at, len, KEY};
        struct fi_msg_rma msg = {.msg_iov = &part, .iov_count = 1, .addr = other, .rma_iov = &there, .rma_iov_count = 1, .context = &access};
        START(&access, fi_writemsg(a, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
        await(&access);
        IS(memcmp(memory.slices[n], out, len), 0);
        START(&access, fi_read(a, in, len, NULL, other, at, KEY, &access));
        await(&access);
        IS(memcmp(in, out, len), 0);
        uint64_t add = word();
        atomic_fetch_add(&due, add);
        START(&access, fi_atomic(a, &add, 1, NULL, other, THREADS * SLICE, KEY, FI_UINT64, FI_SUM, &access));
        await(&access);
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    IS(argc == 3 || argc == 4, 1);
    size_t threads = argc == 4 ? strtoull(argv[3], NULL, 10) : 4;
    seed = strtoull(argv[1], NULL, 10);
    pthread_t ids[THREADS];
    struct fid_mr *mr;
    IS(threads >= 1 && threads <= THREADS, 1);
    rounds = strtoull(argv[2], NULL, 10);
    open_domain(FI_TAGGED | FI_RMA | FI_ATOMIC);
    IS(info->domain_attr->threading, FI_THREAD_SAFE);
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    other = meet(&sides[0], &sides[1]);
    IS(fi_mr_reg(domain, &memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    for (size_t i = 0; i < threads; i++)
        IS(pthread_create(&ids[i], NULL, thread, (void *)i), 0);
    for (size_t i = 0; i < threads; i++)
        IS(pthread_join(ids[i], NULL), 0);
    IS(memory.sum, due);
    IS(fi_close(&mr->fid), 0);
    close_side(&sides[0]);
    close_side(&sides[1]);
    close_domain();
    printf("%zu threads share all\n", threads);
    return 0;
}
