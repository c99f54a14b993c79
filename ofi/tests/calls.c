/* Calls of libfabric over the provider: two endpoints of one process, what goes well and what must fail with a reason. */
#include <complex.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "is.h"

static int readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0);
}

/* Bytes of an address over shared memory, for which every program has room. */
enum { NAME = 32 };

struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_cntr *writes, *reached, *fetched;
    fi_addr_t peers[2];
};

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct side sides[2];

static void open_side(struct side *s, struct fi_info *info)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    struct fi_cntr_attr cntr = {.events = FI_CNTR_EVENTS_COMP};
    IS(fi_endpoint(domain, info, &s->ep, NULL), 0);
    IS(fi_cq_open(domain, &cq, &s->cq, s), 0);
    IS(fi_av_open(domain, &av, &s->av, NULL), 0);
    IS(fi_cntr_open(domain, &cntr, &s->writes, NULL), 0);
    IS(fi_cntr_open(domain, &cntr, &s->reached, NULL), 0);
    IS(fi_cntr_open(domain, &cntr, &s->fetched, NULL), 0);
    /* Not before it is enabled. */
    IS(fi_tsend(s->ep, NULL, 0, NULL, 0, 0, NULL), -FI_EOPBADSTATE);
    IS(fi_enable(s->ep), -FI_ENOAV);
    IS(fi_ep_bind(s->ep, &s->cq->fid, FI_SEND | FI_RECV), 0);
    IS(fi_ep_bind(s->ep, &s->av->fid, 0), 0);
    /* Counters may come later, at one of the sides. */
    if (s == &sides[1])
        IS(fi_enable(s->ep), 0);
    IS(fi_ep_bind(s->ep, &s->writes->fid, FI_WRITE), 0);
    IS(fi_ep_bind(s->ep, &s->reached->fid, FI_REMOTE_WRITE), 0);
    IS(fi_ep_bind(s->ep, &s->fetched->fid, FI_REMOTE_READ), 0);
    IS(fi_enable(s->ep), 0);
    IS(fi_ep_bind(s->ep, &s->av->fid, 0), -FI_EOPBADSTATE);
    IS(fi_ep_bind(s->ep, &s->cq->fid, FI_SEND), -FI_EOPBADSTATE);
}

static void introduce(void)
{
    char names[2][NAME];
    for (int i = 0; i < 2; i++) {
        size_t len = 1;
        IS(fi_getname(&sides[i].ep->fid, names[i], &len), -FI_ETOOSMALL);
        IS(len, NAME);
        IS(fi_getname(&sides[i].ep->fid, names[i], &len), 0);
    }
    for (int i = 0; i < 2; i++) {
        char again[NAME], text[100];
        size_t len = sizeof again, room = sizeof text;
        IS(fi_av_insert(sides[i].av, names, 2, sides[i].peers, 0, NULL), 2);
        IS(fi_av_lookup(sides[i].av, sides[i].peers[1], again, &len), 0);
        IS(len, NAME);
        IS(memcmp(again, names[1], NAME), 0);
        IS(strncmp(fi_av_straddr(sides[i].av, again, text, &room), "shm://", 6), 0);
        memset(again, 7, sizeof again);
        fi_addr_t nobody = 0;
        IS(fi_av_insert(sides[i].av, again, 1, &nobody, 0, NULL), 0);
        IS(nobody, FI_ADDR_NOTAVAIL);
    }
}

/* The next completion of a side, while both make progress. */
static ssize_t next(struct side *s, struct fi_cq_tagged_entry *entry, fi_addr_t *from)
{
    for (;;) {
        struct side *other = s == &sides[0] ? &sides[1] : &sides[0];
        ssize_t got = fi_cq_readfrom(s->cq, entry, 1, from);
        if (got != -FI_EAGAIN)
            return got;
        fi_cntr_read(other->writes);
    }
}

static void failure(struct side *s, int why, size_t missing)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    char text[200];
    IS(next(s, &entry, NULL), -FI_EAVAIL);
    IS(fi_cq_readerr(s->cq, &failed, 0), 1);
    IS(failed.err, why);
    IS(failed.olen, missing);
    IS(strlen(fi_cq_strerror(s->cq, failed.prov_errno, NULL, text, sizeof text)) > 10, 1);
    IS(fi_cq_readerr(s->cq, &failed, 0), -FI_EAGAIN);
}

static void messages(void)
{
    static char from[1 << 20], to[1 << 20];
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    fi_addr_t source;
    for (size_t len = 0; len <= sizeof from; len = len ? len * 16 : 1) {
        for (size_t i = 0; i < len; i++)
            from[i] = (char)(i * 7 + len);
        IS(fi_trecv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, 5, 3, &to), 0);
        IS(fi_tsenddata(a->ep, from, len, NULL, 77, a->peers[1], 6, &from), 0);
        IS(next(b, &entry, &source), 1);
        IS(entry.op_context == &to && entry.buf == to, 1);
        IS(entry.len, len);
        IS(entry.tag, 6);
        IS(entry.data, 77);
        IS(entry.flags, FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA);
        IS(source, b->peers[0]);
        IS(memcmp(from, to, len), 0);
        IS(next(a, &entry, NULL), 1);
        IS(entry.op_context == &from, 1);
    }
    /* Pieces; and a message that is longer than its receive. */
    struct iovec pieces[3] = {{from, 3}, {from + 100, 0}, {from + 50, 4}};
    IS(fi_trecv(b->ep, to, 5, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
    IS(fi_tsendv(a->ep, pieces, NULL, 3, a->peers[1], 1, NULL), 0);
    failure(b, FI_ETRUNC, 2);
    IS(memcmp(to, from, 3) || memcmp(to + 3, from + 50, 2), 0);
    IS(next(a, &entry, NULL), 1);
    /* Injected ones have no completion. */
    IS(fi_tinject(a->ep, from, 8, a->peers[1], 2), 0);
    IS(fi_inject(a->ep, from, 1 << 20, a->peers[1]), -FI_EMSGSIZE);
    IS(fi_trecv(b->ep, to, 8, NULL, b->peers[0], 2, 0, NULL), 0);
    IS(next(b, &entry, NULL), 1);
    IS(fi_cq_read(a->cq, &entry, 1), -FI_EAGAIN);
    /* A receive that is taken back, twice. */
    IS(fi_recv(b->ep, to, 8, NULL, FI_ADDR_UNSPEC, &to), 0);
    IS(fi_cancel(&b->ep->fid, &to), 0);
    IS(fi_cancel(&b->ep->fid, &to), 0);
    failure(b, FI_ECANCELED, 0);
    /* A look that finds nothing, and one that finds something. */
    struct fi_msg_tagged look = {.addr = FI_ADDR_UNSPEC, .tag = 9};
    IS(fi_trecvmsg(b->ep, &look, FI_PEEK), 0);
    failure(b, FI_ENOMSG, 0);
    IS(fi_tinject(a->ep, from, 8, a->peers[1], 9), 0);
    for (int found = 0; !found;) {
        struct fi_cq_err_entry failed = {0};
        IS(fi_trecvmsg(b->ep, &look, FI_PEEK | FI_CLAIM), 0);
        found = next(b, &entry, NULL) == 1;
        if (!found)
            fi_cq_readerr(b->cq, &failed, 0);
        fi_cntr_read(a->writes);
    }
    IS(entry.len, 8);
    IS(fi_trecvmsg(b->ep, &look, FI_CLAIM | FI_DISCARD), 0);
    IS(next(b, &entry, NULL), 1);
    /* Nobody has these numbers. */
    IS(fi_tsend(a->ep, from, 1, NULL, 99, 1, NULL), -FI_EADDRNOTAVAIL);
    IS(fi_tsend(a->ep, NULL, 1, NULL, a->peers[1], 1, NULL), -FI_EINVAL);
}

/* Data beside a message, or a write, that was asked for before or comes first, and that is short, announced or injected. */
static void data(void)
{
    static char from[100000], to[100000];
    const uint64_t all = 0x123456789abcdef0, half = all & 0xffffffff;
    const size_t lens[] = {0, 8, sizeof from};
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    struct fid_mr *mr;
    IS(fi_mr_reg(domain, to, sizeof to, FI_REMOTE_WRITE, 0, 44, 0, &mr, NULL), 0);
    for (int i = 0; i < 3; i++)
        for (int early = 0; early < 2; early++)
            for (int tagged = 0; tagged < 2; tagged++) {
                if (early && tagged)
                    IS(fi_trecv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, 1ULL << 40, 0, to), 0);
                else if (early)
                    IS(fi_recv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, to), 0);
                if (tagged)
                    IS(fi_tsenddata(a->ep, from, lens[i], NULL, all, a->peers[1], 1ULL << 40, from), 0);
                else
                    IS(fi_senddata(a->ep, from, lens[i], NULL, all, a->peers[1], from), 0);
                for (int turns = 0; !early && turns < 100; turns++) {
                    fi_cntr_read(a->writes);
                    fi_cntr_read(b->writes);
                }
                if (!early && tagged)
                    IS(fi_trecv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, 1ULL << 40, 0, to), 0);
                else if (!early)
                    IS(fi_recv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, to), 0);
                IS(next(b, &entry, NULL), 1);
                IS(entry.data, tagged ? half : all);
                IS(entry.tag, tagged ? 1ULL << 40 : 0);
                IS(entry.flags & FI_REMOTE_CQ_DATA, FI_REMOTE_CQ_DATA);
                IS(entry.len, lens[i]);
                IS(next(a, &entry, NULL), 1);
                IS(entry.tag, tagged ? 1ULL << 40 : 0);
            }
    IS(fi_injectdata(a->ep, from, 8, all, a->peers[1]), 0);
    IS(fi_recv(b->ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, to), 0);
    IS(next(b, &entry, NULL), 1);
    IS(entry.data, all);
    for (int i = 0; i < 3; i++) {
        IS(fi_writedata(a->ep, from, lens[i], NULL, all, a->peers[1], 0, 44, NULL), 0);
        IS(next(b, &entry, NULL), 1);
        IS(entry.data, all);
        IS(entry.len, lens[i]);
        IS(next(a, &entry, NULL), 1);
    }
    IS(fi_close(&mr->fid), 0);
}

static void remote_memory(void)
{
    static char memory[100000], here[100000];
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    struct fid_mr *mr, *again;
    IS(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0, &mr, NULL), 0);
    IS(fi_mr_key(mr), 42);
    IS(fi_mr_reg(domain, memory, 8, FI_REMOTE_READ, 0, 42, 0, &again, NULL), -FI_ENOKEY);
    memset(here, 3, sizeof here);
    uint64_t before = fi_cntr_read(a->writes);
    IS(fi_write(a->ep, here, sizeof here, NULL, a->peers[1], 0, 42, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(entry.flags, FI_RMA | FI_WRITE);
    IS(memcmp(memory, here, sizeof here), 0);
    IS(fi_cntr_read(a->writes), before + 1);
    memset(memory, 4, 8);
    IS(fi_read(a->ep, here, 8, NULL, a->peers[1], 0, 42, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(here[7], 4);
    IS(fi_inject_writedata(a->ep, here, 8, 55, a->peers[1], 16, 42), 0);
    IS(next(b, &entry, NULL), 1);
    IS(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    IS(entry.data, 55);
    IS(entry.len, 8);
    IS(memory[16], 4);
    /* As many bytes as were written, however they have travelled. */
    for (size_t len = 0; len <= sizeof here; len += sizeof here / 2) {
        IS(fi_writedata(a->ep, here, len, NULL, 56, a->peers[1], 0, 42, NULL), 0);
        IS(next(b, &entry, NULL), 1);
        IS(entry.len, len);
        IS(next(a, &entry, NULL), 1);
    }
    /* Outside, and without a key. */
    IS(fi_write(a->ep, here, 8, NULL, a->peers[1], sizeof memory - 7, 42, NULL), 0);
    failure(a, FI_EKEYREJECTED, 8);
    IS(fi_read(a->ep, here, 8, NULL, a->peers[1], 0, 43, NULL), 0);
    failure(a, FI_EKEYREJECTED, 8);
    IS(fi_close(&mr->fid), 0);
    IS(fi_read(a->ep, here, 8, NULL, a->peers[1], 0, 42, NULL), 0);
    failure(a, FI_EKEYREJECTED, 8);
}

static void atomics(void)
{
    static int64_t memory[4], one = 1, with = 3, was;
    static double reals[2], half = 0.5;
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    struct fi_atomic_attr attr;
    struct fid_mr *mr[2];
    size_t count = 0;
    IS(fi_query_atomic(domain, FI_INT64, FI_SUM, &attr, 0), 0);
    IS(attr.size == 8 && attr.count > 100, 1);
    IS(fi_query_atomic(domain, FI_DOUBLE, FI_BOR, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_fetch_atomicvalid(a->ep, FI_INT64, FI_ATOMIC_READ, &count), 0);
    IS(fi_compare_atomicvalid(a->ep, FI_INT64, FI_SUM, &count), -FI_EOPNOTSUPP);
    uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    IS(fi_mr_reg(domain, memory, sizeof memory, access, 0, 1, 0, &mr[0], NULL), 0);
    IS(fi_mr_reg(domain, reals, sizeof reals, access, 0, 2, 0, &mr[1], NULL), 0);
    for (int i = 0; i < 3; i++) {
        IS(fi_atomic(a->ep, &one, 1, NULL, a->peers[1], 8, 1, FI_INT64, FI_SUM, NULL), 0);
        IS(next(a, &entry, NULL), 1);
        IS(entry.flags, FI_ATOMIC | FI_WRITE);
    }
    IS(memory[1], 3);
    IS(fi_fetch_atomic(b->ep, &one, 1, NULL, &was, NULL, b->peers[1], 8, 1, FI_INT64, FI_SUM, NULL), 0);
    IS(next(b, &entry, NULL), 1);
    IS(entry.flags, FI_ATOMIC | FI_READ);
    IS(was * 10 + memory[1], 34);
    with = 4;
    IS(fi_compare_atomic(a->ep, &one, 1, NULL, &with, NULL, &was, NULL, a->peers[1], 8, 1, FI_INT64, FI_CSWAP, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(was * 10 + memory[1], 41);
    /* The peer's elements are as many as those here. */
    struct fi_ioc here = {&one, 1};
    struct fi_rma_ioc there = {8, 2, 1};
    struct fi_msg_atomic msg = {.msg_iov = &here, .iov_count = 1, .addr = a->peers[1], .rma_iov = &there, .rma_iov_count = 1,
                                .datatype = FI_INT64, .op = FI_SUM};
    IS(fi_atomicmsg(a->ep, &msg, FI_COMPLETION), -FI_EINVAL);
    there.count = 1;
    IS(fi_atomicmsg(a->ep, &msg, FI_COMPLETION), 0);
    IS(next(a, &entry, NULL), 1);
    IS(memory[1], 2);
    IS(fi_inject_atomic(a->ep, &half, 1, a->peers[1], 0, 2, FI_DOUBLE, FI_SUM), 0);
    IS(fi_fetch_atomic(a->ep, NULL, 1, NULL, &half, NULL, a->peers[1], 0, 2, FI_DOUBLE, FI_ATOMIC_READ, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(half == 0.5 && reals[0] == 0.5, 1);
    IS(fi_atomic(a->ep, &one, 1, NULL, a->peers[1], 32, 1, FI_INT64, FI_SUM, NULL), 0);
    failure(a, FI_EKEYREJECTED, 0);
    for (int i = 0; i < 2; i++)
        IS(fi_close(&mr[i]->fid), 0);
}

/* The largest types: long doubles are what this processor makes of them, to the last bit. */
#define MANY 100

static int same(long double a, long double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

/* Some are close to each other, and some at the ends of what there is. */
static long double any_value(unsigned *seed)
{
    static const long double ends[] = {0, -0.0L, 1, INFINITY, -INFINITY, NAN, LDBL_MAX, LDBL_MIN, LDBL_MIN / 4, -LDBL_TRUE_MIN};
    unsigned kind = rand_r(seed) % 16;
    if (kind < sizeof ends / sizeof *ends)
        return ends[kind];
    uint64_t bits = (uint64_t)rand_r(seed) << 42 ^ (uint64_t)rand_r(seed) << 21 ^ (uint64_t)rand_r(seed);
    int scale = kind < 13 ? -63 + rand_r(seed) % 80 : kind < 15 ? -16445 + rand_r(seed) % 80 : 16300 + rand_r(seed) % 21;
    return ldexpl(rand_r(seed) % 2 ? -(long double)bits : (long double)bits, scale);
}

static void large_atomics(void)
{
    static long double memory[MANY], start[MANY], operand[MANY], with[MANY], was[MANY];
    static long double complex parts[2], turn[2] = {I, I}, before[2];
    static __int128 wide = (__int128)1 << 100, one = -1, old;
    struct side *a = &sides[0];
    struct fi_cq_tagged_entry entry;
    struct fi_atomic_attr attr;
    struct fid_mr *mr[3];
    uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    const enum fi_op ops[] = {FI_SUM, FI_PROD, FI_MIN, FI_MAX, FI_LAND};
    unsigned seed = 1;
    IS(fi_query_atomic(domain, FI_INT128, FI_BXOR, &attr, 0), 0);
    IS(attr.size == 16 && attr.count > 100, 1);
    IS(fi_query_atomic(domain, FI_UINT128 + 1, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_mr_reg(domain, &wide, sizeof wide, access, 0, 3, 0, &mr[0], NULL), 0);
    IS(fi_fetch_atomic(a->ep, &one, 1, NULL, &old, NULL, a->peers[1], 0, 3, FI_INT128, FI_SUM, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(old == (__int128)1 << 100 && wide == old - 1, 1);
#ifdef __x86_64__
    IS(fi_query_atomic(domain, FI_LONG_DOUBLE, FI_BOR, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(domain, FI_LONG_DOUBLE_COMPLEX, FI_MAX, &attr, 0), -FI_EOPNOTSUPP);
    IS(fi_query_atomic(domain, FI_LONG_DOUBLE_COMPLEX, FI_SUM, &attr, 0), 0);
    IS(attr.size, sizeof *parts);
    IS(fi_mr_reg(domain, memory, sizeof memory, access, 0, 4, 0, &mr[1], NULL), 0);
    IS(fi_mr_reg(domain, parts, sizeof parts, access, 0, 5, 0, &mr[2], NULL), 0);
    for (int round = 0; round < 200; round++) {
        enum fi_op op = ops[round % 5];
        int right = 0;
        for (int i = 0; i < MANY; i++) {
            memory[i] = start[i] = any_value(&seed);
            operand[i] = any_value(&seed);
            with[i] = i % 2 ? start[i] : any_value(&seed);
        }
        IS(fi_fetch_atomic(a->ep, operand, MANY, NULL, was, NULL, a->peers[1], 0, 4, FI_LONG_DOUBLE, op, NULL), 0);
        IS(next(a, &entry, NULL), 1);
        for (int i = 0; i < MANY; i++) {
            long double x = start[i], y = operand[i];
            long double due[] = {x + y, x * y, y < x ? y : x, y > x ? y : x, x != 0 && y != 0};
            right += same(was[i], x) && same(memory[i], due[round % 5]);
            memory[i] = x;
        }
        IS(right, MANY);
        IS(fi_compare_atomic(a->ep, operand, MANY, NULL, with, NULL, was, NULL, a->peers[1], 0, 4, FI_LONG_DOUBLE, FI_CSWAP_LE, NULL), 0);
        IS(next(a, &entry, NULL), 1);
        right = 0;
        for (int i = 0; i < MANY; i++)
            right += same(memory[i], with[i] <= start[i] ? operand[i] : start[i]);
        IS(right, MANY);
    }
    parts[1] = 3.0L + 0.5L * I;
    IS(fi_fetch_atomic(a->ep, turn, 2, NULL, before, NULL, a->peers[1], 0, 5, FI_LONG_DOUBLE_COMPLEX, FI_PROD, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(parts[0] == 0 && parts[1] == -0.5L + 3.0L * I && before[1] == 3.0L + 0.5L * I, 1);
    IS(fi_close(&mr[1]->fid), 0);
    IS(fi_close(&mr[2]->fid), 0);
#else
    IS(fi_query_atomic(domain, FI_LONG_DOUBLE, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
#endif
    IS(fi_close(&mr[0]->fid), 0);
}

/* Counters, queues and event queues that a program may not sleep on say so; event queues carry what it writes. */
static void waits(void)
{
    struct fi_cq_attr polled = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    struct fi_cntr_attr count = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    struct fi_eq_attr told = {.wait_obj = FI_WAIT_FD, .flags = FI_WRITE};
    struct fi_cq_tagged_entry entry;
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_eq *eq;
    struct fid_wait *set;
    struct fi_wait_attr all = {.wait_obj = FI_WAIT_UNSPEC};
    int fd = -1;
    IS(fi_cq_open(domain, &polled, &cq, NULL), 0);
    IS(fi_cq_sread(cq, &entry, 1, NULL, 0), -FI_ENOSYS);
    IS(fi_cq_signal(cq), -FI_ENOSYS);
    IS(fi_control(&cq->fid, FI_GETWAIT, &fd), -FI_ENOSYS);
    struct fid *fid = &cq->fid;
    IS(fi_trywait(fabric, &fid, 1), -FI_EINVAL);
    IS(fi_trywait(fabric, NULL, 0), 0);
    IS(fi_trywait(fabric, NULL, 2), -FI_EINVAL);
    IS(fi_trywait(fabric, &fid, -1), -FI_EINVAL);
    fid = NULL;
    IS(fi_trywait(fabric, &fid, 1), -FI_EINVAL);
    fid = &sides[0].ep->fid;
    IS(fi_trywait(fabric, &fid, 1), -FI_EINVAL);
    IS(fi_close(&cq->fid), 0);
    IS(fi_cntr_open(domain, &count, &cntr, NULL), 0);
    IS(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
    IS(fi_control(&cntr->fid, FI_GETWAIT, &fd), -FI_ENOSYS);
    IS(fi_close(&cntr->fid), 0);
    polled.wait_obj = FI_WAIT_MUTEX_COND;
    IS(fi_cq_open(domain, &polled, &cq, NULL), -FI_ENOSYS);
    IS(fi_wait_open(fabric, &all, &set), -FI_ENOSYS);
    /* A counter that the program changes itself. */
    count.wait_obj = FI_WAIT_FD;
    IS(fi_cntr_open(domain, &count, &cntr, NULL), 0);
    IS(fi_control(&cntr->fid, FI_GETWAIT, NULL), -FI_EINVAL);
    IS(fi_control(&cntr->fid, FI_GETWAIT, &fd), 0);
    fid = &cntr->fid;
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(readable(fd), 0);
    IS(fi_cntr_add(cntr, 2), 0);
    IS(readable(fd), 1);
    IS(fi_cntr_wait(cntr, 2, -1), 0);
    IS(fi_cntr_wait(cntr, 3, 1), -FI_ETIMEDOUT);
    IS(fi_trywait(fabric, &fid, 1), -FI_EAGAIN);
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(readable(fd), 0);
    IS(fi_cntr_adderr(cntr, 1), 0);
    IS(readable(fd), 1);
    IS(fi_cntr_set(cntr, 7), 0);
    IS(fi_cntr_seterr(cntr, 5), 0);
    IS(fi_cntr_read(cntr) * 10 + fi_cntr_readerr(cntr), 75);
    IS(fi_close(&cntr->fid), 0);
    /* Events. */
    struct fi_eq_entry in = {.context = &told}, out = {0};
    uint32_t event = 0;
    IS(fi_eq_open(fabric, &told, &eq, NULL), 0);
    IS(fi_control(&eq->fid, FI_GETWAIT, &fd), 0);
    fid = &eq->fid;
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(fi_eq_sread(eq, &event, &out, sizeof out, 1, 0), -FI_EAGAIN);
    IS(fi_eq_write(eq, FI_NOTIFY, &in, sizeof in, 0), sizeof in);
    IS(readable(fd), 1);
    IS(fi_trywait(fabric, &fid, 1), -FI_EAGAIN);
    IS(fi_eq_read(eq, &event, &out, sizeof out - 1, 0), -FI_ETOOSMALL);
    event = ~0u;
    IS(fi_eq_sread(eq, &event, &out, sizeof out, -1, FI_PEEK), sizeof out);
    IS(event, FI_NOTIFY);
    IS(out.context == &told, 1);
    IS(fi_eq_read(eq, &event, &out, sizeof out, 0), sizeof out);
    IS(fi_eq_read(eq, &event, &out, sizeof out, 0), -FI_EAGAIN);
    IS(fi_trywait(fabric, &fid, 1), 0);
    /* More bytes than there are, none, and nowhere to read them to: the event stays. */
    IS(fi_eq_write(eq, FI_NOTIFY, &in, SIZE_MAX, 0), -FI_ENOMEM);
    IS(fi_eq_write(eq, FI_NOTIFY, &in, SIZE_MAX / 2, 0), -FI_ENOMEM);
    IS(fi_eq_write(eq, FI_NOTIFY, NULL, 8, 0), -FI_EINVAL);
    IS(fi_eq_write(eq, FI_NOTIFY, &in, sizeof in, 0), sizeof in);
    IS(fi_eq_read(eq, NULL, &out, sizeof out, 0), -FI_EINVAL);
    IS(fi_eq_read(eq, &event, NULL, sizeof out, 0), -FI_EINVAL);
    IS(fi_eq_readerr(eq, NULL, 0), -FI_EINVAL);
    IS(fi_eq_read(eq, &event, &out, 0, 0), -FI_ETOOSMALL);
    IS(fi_eq_read(eq, &event, &out, sizeof out, 0), sizeof out);
    IS(fi_close(&eq->fid), 0);
    told.flags = 0;
    told.wait_obj = FI_WAIT_NONE;
    IS(fi_eq_open(fabric, &told, &eq, NULL), 0);
    IS(fi_eq_write(eq, FI_NOTIFY, &in, sizeof in, 0), -FI_EINVAL);
    IS(fi_eq_sread(eq, &event, &out, sizeof out, 0, 0), -FI_ENOSYS);
    IS(fi_control(&eq->fid, FI_GETWAIT, &fd), -FI_ENOSYS);
    IS(fi_close(&eq->fid), 0);
}

/* A thread in a call that sleeps on an object. */
struct sleep {
    struct fid *on;
    ssize_t (*call)(struct fid *);
    atomic_int thread;
    ssize_t got;
};

static ssize_t on_queue(struct fid *cq)
{
    struct fi_cq_tagged_entry entry;
    return fi_cq_sread((struct fid_cq *)cq, &entry, 1, NULL, -1);
}

static ssize_t on_counter(struct fid *cntr)
{
    return fi_cntr_wait((struct fid_cntr *)cntr, 1, -1);
}

static ssize_t on_events(struct fid *eq)
{
    uint32_t event;
    char byte;
    return fi_eq_sread((struct fid_eq *)eq, &event, &byte, 1, -1, 0);
}

static void *sleep_on(void *arg)
{
    struct sleep *s = arg;
    atomic_store(&s->thread, (int)syscall(SYS_gettid));
    s->got = s->call(s->on);
    return NULL;
}

/* Whether the system has put the thread to sleep. */
static int is_asleep(int thread)
{
    char name[64], state = 0;
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(name, "r");
    IS(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1, 1);
    fclose(file);
    return state == 'S';
}

/* What a thread sleeps on does not close. */
static pthread_t cannot_close(struct sleep *s)
{
    pthread_t thread;
    IS(pthread_create(&thread, NULL, sleep_on, s), 0);
    while (atomic_load(&s->thread) == 0 || !is_asleep(atomic_load(&s->thread)))
        sched_yield();
    IS(fi_close(s->on), -FI_EBUSY);
    return thread;
}

static void closings(void)
{
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP};
    struct fi_eq_attr eq_attr = {.flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_eq *eq;
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_cntr_open(domain, &cntr_attr, &cntr, NULL), 0);
    IS(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
    struct sleep all[] = {
        {.on = &cq->fid, .call = on_queue},
        {.on = &cntr->fid, .call = on_counter},
        {.on = &eq->fid, .call = on_events},
    };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = cannot_close(&all[i]);
    IS(fi_cq_signal(cq), 0);
    IS(fi_cntr_add(cntr, 1), 0);
    IS(fi_eq_write(eq, FI_NOTIFY, "e", 1, 0), 1);
    const ssize_t due[] = {-FI_EAGAIN, 0, 1};
    for (int i = 0; i < 3; i++) {
        IS(pthread_join(threads[i], NULL), 0);
        IS(all[i].got, due[i]);
        IS(fi_close(all[i].on), 0);
    }
}

/* A domain of the SeaStar model, where time passes by the program's calls alone, so nobody sleeps on a descriptor. */
static void model(const struct fi_info *offered)
{
    struct fi_info *info = fi_dupinfo(offered);
    struct fid_domain *modelled;
    struct fid_cq *cq;
    struct fi_cq_tagged_entry entry;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    free(info->domain_attr->name);
    info->domain_attr->name = strdup("seastar");
    IS(fi_domain(fabric, info, &modelled, NULL), 0);
    IS(fi_cq_open(modelled, &attr, &cq, NULL), -FI_ENOSYS);
    attr.wait_obj = FI_WAIT_UNSPEC;
    IS(fi_cq_open(modelled, &attr, &cq, NULL), 0);
    IS(fi_cq_sread(cq, &entry, 1, NULL, 1), -FI_EAGAIN);
    IS(fi_cq_signal(cq), 0);
    IS(fi_cq_sread(cq, &entry, 1, NULL, -1), -FI_EAGAIN);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&modelled->fid), 0);
    fi_freeinfo(info);
}

/* What peers do with memory is counted by the endpoint, and by the region that it happens to. */
static void remote_counts(void)
{
    static char memory[2][10000], here[10000];
    static uint64_t one = 1, was;
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
    struct fid_cntr *writes, *reads;
    struct fid_mr *mr[2];
    uint64_t reached = fi_cntr_read(b->reached), fetched = fi_cntr_read(b->fetched);
    IS(fi_cntr_open(domain, &attr, &writes, NULL), 0);
    IS(fi_cntr_open(domain, &attr, &reads, NULL), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        IS(fi_mr_reg(domain, memory[i], sizeof memory[i], access, 0, 70 + i, FI_RMA_EVENT, &mr[i], NULL), 0);
    }
    IS(fi_mr_bind(mr[0], &writes->fid, 0), -FI_EBADFLAGS);
    IS(fi_mr_bind(mr[0], &writes->fid, FI_REMOTE_WRITE), 0);
    IS(fi_mr_bind(mr[0], &reads->fid, FI_REMOTE_READ), 0);
    IS(fi_mr_bind(mr[0], &b->ep->fid, 0), 0);
    IS(fi_mr_bind(mr[0], &b->cq->fid, 0), -FI_EINVAL);
    IS(fi_mr_enable(mr[0]), 0);
    /* It can be reached from its registration on, so a counter may come late. */
    IS(fi_mr_bind(mr[0], &reads->fid, FI_REMOTE_READ), 0);
    /* Short and long ones of either region; the other one's are not counted there. */
    for (int i = 0; i < 2; i++)
        for (size_t len = 8; len <= sizeof here; len += sizeof here - 8) {
            IS(fi_write(a->ep, here, len, NULL, a->peers[1], 0, 70 + i, NULL), 0);
            IS(next(a, &entry, NULL), 1);
            IS(fi_read(a->ep, here, len, NULL, a->peers[1], 0, 70 + i, NULL), 0);
            IS(next(a, &entry, NULL), 1);
        }
    /* What nothing permits is no access. */
    IS(fi_write(a->ep, here, 8, NULL, a->peers[1], sizeof memory[0], 70, NULL), 0);
    failure(a, FI_EKEYREJECTED, 8);
    IS(fi_cntr_wait(b->reached, reached + 4, 60000), 0);
    IS(fi_cntr_wait(b->fetched, fetched + 4, 60000), 0);
    IS(fi_cntr_read(writes), 2);
    IS(fi_cntr_read(reads), 2);
    /* Atomic operations, of which the one that fetches is a write to the memory that it modifies, and a write that carries data,
     * which is one write. */
    IS(fi_atomic(a->ep, &one, 1, NULL, a->peers[1], 0, 70, FI_UINT64, FI_SUM, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(fi_fetch_atomic(a->ep, &one, 1, NULL, &was, NULL, a->peers[1], 0, 70, FI_UINT64, FI_SUM, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(fi_writedata(a->ep, here, 8, NULL, 9, a->peers[1], 0, 70, NULL), 0);
    IS(next(a, &entry, NULL), 1);
    IS(next(b, &entry, NULL), 1);
    IS(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    IS(fi_cntr_read(writes), 5);
    IS(fi_cntr_read(reads), 3);
    IS(fi_cntr_read(b->reached), reached + 6);
    IS(fi_cntr_read(b->fetched), fetched + 5);
    IS(fi_cntr_readerr(b->reached), 0);
    /* Who waits for a peer in the same process serves it: there is nobody else to do so. */
    uint64_t done = fi_cntr_read(a->writes);
    IS(fi_atomic(a->ep, &one, 1, NULL, a->peers[1], 0, 70, FI_UINT64, FI_SUM, NULL), 0);
    IS(fi_cntr_wait(a->writes, done + 1, 60000), 0);
    IS(fi_fetch_atomic(a->ep, &one, 1, NULL, &was, NULL, a->peers[1], 0, 70, FI_UINT64, FI_SUM, NULL), 0);
    IS(fi_cq_sread(a->cq, &entry, 1, NULL, 60000), 1);
    IS(fi_cq_sread(a->cq, &entry, 1, NULL, 60000), 1);
    /* A region uses its counters. */
    IS(fi_close(&writes->fid), -FI_EBUSY);
    for (int i = 0; i < 2; i++)
        IS(fi_close(&mr[i]->fid), 0);
    IS(fi_close(&writes->fid), 0);
    IS(fi_close(&reads->fid), 0);
}

/* Queues and counters that are asked for news together. */
static void polls(void)
{
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_poll_attr attr = {.flags = 1};
    struct fi_cntr_attr count = {.events = FI_CNTR_EVENTS_COMP};
    struct fi_cq_tagged_entry entry;
    struct fid_poll *set;
    struct fid_cntr *cntr;
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED};
    struct fid_cq *unbound;
    void *news[2] = {NULL, NULL};
    char in[8], out[8] = "polled";
    int one;
    IS(fi_poll_open(domain, &attr, &set), -FI_EBADFLAGS);
    attr.flags = 0;
    IS(fi_poll_open(domain, &attr, &set), 0);
    IS(fi_cntr_open(domain, &count, &cntr, &one), 0);
    IS(fi_poll_add(set, &a->ep->fid, 0), -FI_EINVAL);
    IS(fi_poll_add(set, &b->cq->fid, 0), 0);
    IS(fi_poll_add(set, &cntr->fid, 0), 0);
    /* Once is as good as twice. */
    IS(fi_poll_add(set, &cntr->fid, 0), 0);
    IS(fi_poll(set, news, 2), 0);
    IS(fi_poll_add(set, NULL, 0), -FI_EINVAL);
    IS(fi_poll_add(set, &cntr->fid, 1), -FI_EBADFLAGS);
    IS(fi_poll_del(set, NULL, 0), -FI_EINVAL);
    IS(fi_poll_del(set, &cntr->fid, 1), -FI_EBADFLAGS);
    IS(fi_cntr_add(cntr, 1), 0);
    IS(fi_poll(set, news, -1), -FI_EINVAL);
    IS(fi_poll(set, NULL, 2), -FI_EINVAL);
    IS(fi_poll(set, news, 0), 0);
    IS(fi_poll(set, news, 2), 1);
    IS(news[0] == &one, 1);
    IS(fi_poll(set, news, 2), 0);
    /* It makes progress, and says of an entry until that is read. */
    IS(fi_trecv(b->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 3, 0, NULL), 0);
    IS(fi_tinject(a->ep, out, sizeof out, a->peers[1], 3), 0);
    while (fi_poll(set, news, 2) == 0)
        fi_cntr_read(a->writes);
    IS(news[0] == b, 1);
    IS(fi_cntr_adderr(cntr, 1), 0);
    IS(fi_poll(set, news, 1), 1);
    IS(fi_poll(set, news, 2), 2);
    /* Whoever wants no entry neither takes one nor waits for one. */
    IS(fi_cq_read(b->cq, NULL, 1), -FI_EINVAL);
    IS(fi_cq_read(b->cq, NULL, 0), 0);
    IS(fi_cq_sread(b->cq, NULL, 0, NULL, -1), 0);
    IS(fi_cq_read(b->cq, &entry, 1), 1);
    IS(fi_cq_read(b->cq, NULL, 0), -FI_EAGAIN);
    IS(fi_poll(set, news, 2), 0);
    IS(strcmp(in, "polled"), 0);
    IS(fi_close(&set->fid), -FI_EBUSY);
    IS(fi_close(&cntr->fid), -FI_EBUSY);
    IS(fi_cq_open(domain, &queue, &unbound, NULL), 0);
    IS(fi_poll_add(set, &unbound->fid, 0), 0);
    IS(fi_close(&unbound->fid), -FI_EBUSY);
    IS(fi_poll_del(set, &unbound->fid, 0), 0);
    IS(fi_close(&unbound->fid), 0);
    IS(fi_poll_del(set, &cntr->fid, 0), 0);
    IS(fi_poll_del(set, &cntr->fid, 0), -FI_EINVAL);
    IS(fi_poll_del(set, &b->cq->fid, 0), 0);
    IS(fi_close(&set->fid), 0);
    IS(fi_close(&cntr->fid), 0);
}

/* An address vector that tells of the ends of insertions. */
static void told_insertions(void)
{
    struct fi_av_attr attr = {.type = FI_AV_TABLE, .flags = FI_EVENT};
    struct fi_eq_attr waits = {.wait_obj = FI_WAIT_FD};
    struct fi_eq_entry end = {0};
    struct fi_eq_err_entry failed = {0};
    struct fid_av *av;
    struct fid_eq *eq;
    char names[3][NAME], text[100];
    size_t len = NAME;
    fi_addr_t numbers[3] = {7, 7, 7};
    uint32_t event = 0;
    int context, fd, errors[3] = {7, 7, 7};
    IS(fi_getname(&sides[0].ep->fid, names[0], &len), 0);
    IS(fi_getname(&sides[1].ep->fid, names[2], &len), 0);
    memset(names[1], 7, NAME);
    IS(fi_av_open(domain, &attr, &av, NULL), 0);
    IS(fi_eq_open(fabric, &waits, &eq, NULL), 0);
    IS(fi_av_insert(av, names, 3, numbers, 0, &context), -FI_ENOEQ);
    IS(fi_av_bind(av, &sides[0].cq->fid, 0), -FI_EINVAL);
    IS(fi_av_bind(av, &eq->fid, 0), 0);
    IS(fi_av_bind(av, &eq->fid, 0), -FI_EINVAL);
    struct fid *fid = &eq->fid;
    IS(fi_control(fid, FI_GETWAIT, &fd), 0);
    IS(fi_trywait(fabric, &fid, 1), 0);
    IS(fi_av_insert(av, names, 3, numbers, 0, &context), 0);
    IS(readable(fd), 1);
    /* What has failed comes first. */
    IS(fi_eq_read(eq, &event, &end, sizeof end, 0), -FI_EAVAIL);
    IS(fi_eq_sread(eq, &event, &end, sizeof end, -1, 0), -FI_EAVAIL);
    for (uint64_t flags = FI_PEEK;; flags = 0) {
        IS(fi_eq_readerr(eq, &failed, flags), sizeof failed);
        IS(failed.fid == &av->fid && failed.context == &context, 1);
        IS(failed.data, 1);
        IS(failed.err, FI_EADDRNOTAVAIL);
        if (!flags)
            break;
    }
    IS(strlen(fi_eq_strerror(eq, failed.prov_errno, NULL, text, sizeof text)) > 10, 1);
    IS(fi_eq_readerr(eq, &failed, 0), -FI_EAGAIN);
    IS(fi_eq_sread(eq, &event, &end, sizeof end, -1, 0), sizeof end);
    IS(event, FI_AV_COMPLETE);
    IS(end.fid == &av->fid && end.context == &context, 1);
    IS(end.data, 2);
    IS(numbers[0] == 0 && numbers[1] == FI_ADDR_NOTAVAIL && numbers[2] == 1, 1);
    IS(fi_av_insert(av, names, 0, numbers, 0, NULL), 0);
    IS(fi_eq_read(eq, &event, &end, sizeof end, 0), sizeof end);
    IS(end.data, 0);
    IS(fi_eq_read(eq, &event, &end, sizeof end, 0), -FI_EAGAIN);
    IS(fi_close(&eq->fid), -FI_EBUSY);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&eq->fid), 0);
    /* What has become of each address, at once. */
    attr.flags = 0;
    IS(fi_av_open(domain, &attr, &av, NULL), 0);
    IS(fi_av_insert(av, names, 3, numbers, FI_SYNC_ERR, errors), 2);
    IS(fi_av_remove(av, NULL, 2, 0), -FI_EINVAL);
    IS(fi_av_insert(av, names, SIZE_MAX, numbers, 0, NULL), -FI_EINVAL);
    IS(fi_av_insert(av, NULL, 1, numbers, 0, NULL), -FI_EINVAL);
    IS(errors[0] == 0 && errors[1] == FI_EADDRNOTAVAIL && errors[2] == 0, 1);
    IS(fi_close(&av->fid), 0);
}

static void several(void)
{
    static char buffer[1000];
    struct side *a = &sides[0], *b = &sides[1];
    struct fi_cq_tagged_entry entry;
    size_t least = 200, len = sizeof least;
    IS(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, len), 0);
    IS(fi_setopt(&b->ep->fid, FI_OPT_ENDPOINT, 99, &least, len), -FI_ENOPROTOOPT);
    struct iovec whole = {buffer, sizeof buffer};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
    IS(fi_recvmsg(b->ep, &msg, FI_MULTI_RECV), 0);
    for (int i = 0; i < 3; i++) {
        char from[300];
        memset(from, i, sizeof from);
        IS(fi_inject(a->ep, from, sizeof from, a->peers[1]), 0);
        IS(next(b, &entry, NULL), 1);
        IS((char *)entry.buf - buffer, 300 * i);
        IS(entry.flags, FI_MSG | FI_RECV | (i == 2 ? FI_MULTI_RECV : 0));
        IS(memcmp(entry.buf, from, sizeof from), 0);
    }
}

/* `FI_MR_SCALABLE`, a name that newer headers do not have. */
enum { MR_SCALABLE = 1 << 1 };

/* What is offered is what was asked for, or nothing is. */
static void offers(struct fi_info *hints)
{
    struct fi_info *info = NULL;
    hints->caps |= FI_COLLECTIVE;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), -FI_ENODATA);
    hints->caps &= ~FI_COLLECTIVE;
    hints->domain_attr->caps = FI_SHARED_AV;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), -FI_ENODATA);
    hints->domain_attr->caps = FI_LOCAL_COMM;
    const int mr_mode = hints->domain_attr->mr_mode;
    hints->domain_attr->mr_mode = MR_SCALABLE;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    IS(info->domain_attr->mr_mode, MR_SCALABLE);
    fi_freeinfo(info);
    hints->domain_attr->mr_mode = FI_MR_UNSPEC;
    IS(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &info), 0);
    IS(info->domain_attr->mr_mode, MR_SCALABLE);
    fi_freeinfo(info);
    hints->domain_attr->mr_mode = mr_mode;
    hints->addr_format = FI_SOCKADDR;
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), -FI_ENODATA);
    hints->addr_format = FI_FORMAT_UNSPEC;
}

/* The source address says the fabric and names nobody; it may be given back. */
static void source(struct fi_info *info)
{
    char text[100];
    size_t room = sizeof text;
    fi_addr_t number;
    struct fi_info *again = NULL;
    IS(info->src_addrlen, NAME);
    IS(strcmp(fi_av_straddr(sides[0].av, info->src_addr, text, &room), "shm://nobody"), 0);
    IS(fi_av_insert(sides[0].av, info->src_addr, 1, &number, 0, NULL), 0);
    IS(number, FI_ADDR_NOTAVAIL);
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, info, &again), 0);
    IS(memcmp(again->src_addr, info->src_addr, NAME), 0);
    fi_freeinfo(again);
}

int main(void)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    hints->caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT;
    hints->mode = ~0ULL;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED;
    hints->fabric_attr->prov_name = strdup("portolan");
    offers(hints);
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    IS(info->next == NULL, 1);
    IS(info->mode, 0);
    IS(info->domain_attr->mr_mode, 0);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    for (int i = 0; i < 2; i++)
        open_side(&sides[i], info);
    introduce();
    source(info);
    messages();
    data();
    remote_memory();
    atomics();
    large_atomics();
    remote_counts();
    several();
    waits();
    closings();
    model(info);
    told_insertions();
    polls();
    /* In the wrong order. */
    IS(fi_close(&domain->fid), -FI_EBUSY);
    IS(fi_close(&sides[0].cq->fid), -FI_EBUSY);
    for (int i = 0; i < 2; i++) {
        IS(fi_close(&sides[i].ep->fid), 0);
        IS(fi_close(&sides[i].cq->fid), 0);
        IS(fi_close(&sides[i].writes->fid), 0);
        IS(fi_close(&sides[i].reached->fid), 0);
        IS(fi_close(&sides[i].fetched->fid), 0);
        IS(fi_close(&sides[i].av->fid), 0);
    }
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
    puts("all calls are right");
    return 0;
}
