/* Random calls of every function, most of them wrong: arguments out of range, objects that are not enabled, bound or of another kind. Each
   call ends with a code of libfabric, nothing outside of the program's buffers is written, and all that was opened can be closed.
   Usage: random_calls SEED CALLS [THREADS]: each thread has objects of its own in one domain, and they talk to each other's endpoints. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "chance.h"
#include "domain.h"

enum { OBJECTS = 40, ROOM = 1 << 16, CANARY = 256, THREADS = 8, NAMES = 16 };
enum kind { EP, CQ, CNTR, AV, MR, POLL, EQ, DOMAIN, KINDS };

struct object {
    enum kind kind;
    struct fid *fid;
};

/* What one thread has. */
static __thread struct object objects[OBJECTS];
static __thread size_t object_count;
static __thread unsigned char *room;
static __thread const char *doing;
static __thread uint64_t tally[2];

static struct {
    unsigned char name[256];
    size_t len;
} names[NAMES];
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t calls;

/* The code of a call: none, or one of libfabric's errors. */
static long long code(const char *what, long long is)
{
    if (is < 0 && (is < -FI_ERRNO_MAX || (is < -200 && is > -FI_ERRNO_OFFSET))) {
        fprintf(stderr, "%s gives %lld\n", what, is);
        exit(1);
    }
    tally[is < 0]++;
    return is;
}

#define TRY(call) (doing = #call, code(#call, (long long)(call)))

static uint64_t any_number(void)
{
    static const uint64_t numbers[] = {0, 1, 2, 7, 8, 4096, 65536, 1ull << 31, 1ull << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 1};
    return one_in(3) ? word() : numbers[below(12)];
}

/* Flags, most of them of libfabric. */
static uint64_t any_flags(void)
{
    static const uint64_t flags[] = {
        FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE,
        FI_REMOTE_CQ_DATA, FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MULTI_RECV, FI_FENCE, FI_MORE, FI_TRANSMIT, FI_RECV, FI_SEND,
        FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SELECTIVE_COMPLETION, FI_RMA_EVENT};
    uint64_t all = 0;
    for (size_t n = below(4); n > 0; n--)
        all |= flags[below(sizeof flags / sizeof *flags)];
    return one_in(20) ? any_number() : all;
}

static size_t any_length(void)
{
    return one_in(4) ? below(ROOM + 1) : below(600);
}

/* A place for so many bytes, which operations may write to at any time. */
static void *place(size_t len)
{
    return room + CANARY + below(ROOM - (len > ROOM ? ROOM : len) + 1);
}

/* Says how many are meant; all are there. */
static size_t pieces(struct iovec parts[12])
{
    size_t n = below(one_in(10) ? 13 : 4);
    for (size_t i = 0; i < 12; i++) {
        size_t len = any_length() / 4;
        parts[i] = (struct iovec){place(len), len};
    }
    return n;
}

/* Some object of this kind, or NULL. */
static void *some(enum kind kind)
{
    for (size_t tries = 0; tries < 20 && object_count > 0; tries++) {
        struct object *o = &objects[below(object_count)];
        if (o->kind == kind)
            return o->fid;
    }
    return NULL;
}

/* The call that has opened it is made before its place is read. */
static void keep(enum kind kind, long long opened, void *fid)
{
    if (opened == 0)
        objects[object_count++] = (struct object){kind, *(struct fid **)fid};
}

static fi_addr_t any_peer(void)
{
    switch (below(8)) {
    case 0:
        return FI_ADDR_UNSPEC;
    case 1:
        return any_number();
    default:
        return below(8);
    }
}

static uint64_t any_key(void)
{
    return one_in(10) ? any_number() : below(64);
}

static void open_one(void)
{
    static const enum fi_wait_obj waits[] = {FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD, FI_WAIT_POLLFD, 77};
    void *fid = NULL;
    struct fid_domain *in = one_in(8) ? some(DOMAIN) : NULL;
    if (!in)
        in = domain;
    if (object_count == OBJECTS)
        return;
    switch (below(11)) {
    case 0:
    case 1:
        keep(EP, TRY(fi_endpoint(in, info, (struct fid_ep **)&fid, NULL)), &fid);
        break;
    case 2:
    case 3: {
        struct fi_cq_attr attr = {.format = below(6), .wait_obj = waits[below(7)], .size = below(300), .flags = one_in(8) ? any_flags() : 0};
        keep(CQ, TRY(fi_cq_open(in, &attr, (struct fid_cq **)&fid, NULL)), &fid);
        break;
    }
    case 4: {
        struct fi_cntr_attr attr = {.events = below(3), .wait_obj = waits[below(7)], .flags = one_in(8) ? any_flags() : 0};
        keep(CNTR, TRY(fi_cntr_open(in, &attr, (struct fid_cntr **)&fid, NULL)), &fid);
        break;
    }
    case 5: {
        struct fi_av_attr attr = {.type = below(4), .count = below(100), .flags = one_in(8) ? any_flags() : 0};
        attr.rx_ctx_bits = one_in(10) ? below(3) : 0;
        keep(AV, TRY(fi_av_open(in, &attr, (struct fid_av **)&fid, NULL)), &fid);
        break;
    }
    case 6:
    case 7: {
        size_t len = any_length();
        uint64_t access = one_in(3) ? any_flags() : FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE;
        uint64_t flags = one_in(3) ? any_flags() : 0;
        if (one_in(2)) {
            keep(MR, TRY(fi_mr_reg(in, place(len), len, access, one_in(8), any_key(), flags, (struct fid_mr **)&fid, NULL)), &fid);
        } else {
            struct iovec parts[12];
            size_t n = pieces(parts);
            keep(MR, TRY(fi_mr_regv(in, parts, n, access, 0, any_key(), flags, (struct fid_mr **)&fid, NULL)), &fid);
        }
        break;
    }
    case 8: {
        struct fi_poll_attr attr = {.flags = one_in(8)};
        keep(POLL, TRY(fi_poll_open(in, &attr, (struct fid_poll **)&fid)), &fid);
        break;
    }
    case 9: {
        struct fi_eq_attr attr = {.size = below(100), .wait_obj = waits[below(7)], .flags = one_in(4) ? FI_WRITE : 0};
        keep(EQ, TRY(fi_eq_open(fabric, &attr, (struct fid_eq **)&fid, NULL)), &fid);
        break;
    }
    default:
        if (one_in(6))
            keep(DOMAIN, TRY(fi_domain(fabric, info, (struct fid_domain **)&fid, NULL)), &fid);
    }
}

/* An endpoint as programs have one, with peers. */
static void open_whole(void)
{
    if (object_count + 3 > OBJECTS)
        return;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = one_in(2) ? FI_AV_TABLE : FI_AV_MAP};
    if (TRY(fi_endpoint(domain, info, &ep, NULL)) != 0)
        return;
    keep(EP, 0, &ep);
    keep(CQ, TRY(fi_cq_open(domain, &cq_attr, &cq, NULL)), &cq);
    keep(AV, TRY(fi_av_open(domain, &av_attr, &av, NULL)), &av);
    IS(TRY(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | (one_in(4) ? FI_SELECTIVE_COMPLETION : 0))), 0);
    IS(TRY(fi_ep_bind(ep, &av->fid, 0)), 0);
    if (TRY(fi_enable(ep)) != 0)
        return;
    pthread_mutex_lock(&names_lock);
    size_t at = below(NAMES);
    names[at].len = sizeof names[at].name;
    IS(TRY(fi_getname(&ep->fid, names[at].name, &names[at].len)), 0);
    for (size_t i = 0; i < NAMES; i++)
        if (names[i].len > 0) {
            fi_addr_t peer;
            (void)TRY(fi_av_insert(av, names[i].name, 1, &peer, 0, NULL));
        }
    pthread_mutex_unlock(&names_lock);
}

static void configure(void)
{
    struct fid_ep *ep = some(EP);
    struct fid_mr *mr = some(MR);
    struct fid *to = object_count > 0 ? objects[below(object_count)].fid : NULL;
    uint64_t value = any_number();
    size_t len = one_in(2) ? sizeof value : below(9);
    switch (below(8)) {
    case 0:
    case 1:
        if (ep && to)
            (void)TRY(fi_ep_bind(ep, to, any_flags()));
        break;
    case 2:
        if (mr && to)
            (void)TRY(fi_mr_bind(mr, to, any_flags()));
        break;
    case 3:
        if (ep)
            (void)TRY(fi_enable(ep));
        if (mr)
            (void)TRY(fi_mr_enable(mr));
        break;
    case 4:
        if (ep)
            (void)TRY(fi_getopt(&ep->fid, one_in(8), below(20), &value, &len));
        break;
    case 5:
        if (ep)
            (void)TRY(fi_setopt(&ep->fid, one_in(8), below(20), &value, len));
        break;
    case 6: {
        uint64_t flags = any_flags();
        if (ep)
            (void)TRY(fi_control(&ep->fid, one_in(2) ? FI_SETOPSFLAG : FI_GETOPSFLAG, &flags));
        break;
    }
    default:
        if (to)
            (void)TRY(fi_control(to, FI_GETWAITOBJ, &value));
    }
}

static void addresses(void)
{
    struct fid_av *av = some(AV);
    struct fid_ep *ep = some(EP);
    unsigned char name[256];
    size_t len = one_in(2) ? sizeof name : below(sizeof name);
    fi_addr_t peers[4] = {any_peer(), any_peer(), any_peer(), any_peer()};
    char text[300];
    size_t text_len = below(sizeof text);
    if (ep && one_in(3))
        (void)TRY(fi_getname(&ep->fid, name, &len));
    if (!av)
        return;
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = word();
    pthread_mutex_lock(&names_lock);
    if (one_in(2)) {
        size_t at = below(NAMES);
        memcpy(name, names[at].name, names[at].len);
        if (one_in(4))
            name[below(64)] ^= 1 << below(8);
    }
    pthread_mutex_unlock(&names_lock);
    switch (below(4)) {
    case 0:
        (void)TRY(fi_av_insert(av, name, 1, one_in(4) ? NULL : peers, one_in(6) ? any_flags() : 0, NULL));
        break;
    case 1:
        if (one_in(4))
            (void)TRY(fi_av_remove(av, peers, below(5), one_in(6) ? any_flags() : 0));
        break;
    case 2:
        (void)TRY(fi_av_lookup(av, peers[0], name, &len));
        break;
    default:
        (void)fi_av_straddr(av, name, text, &text_len);
    }
}

static void message(struct fid_ep *ep)
{
    size_t len = any_length();
    void *buf = place(len), *context = place(1);
    fi_addr_t peer = any_peer();
    uint64_t tag = below(3), ignore = one_in(2) ? ~0ull : 0, flags = any_flags(), data = word();
    struct iovec parts[12];
    size_t n = pieces(parts);
    struct fi_msg msg = {.msg_iov = parts, .iov_count = n, .addr = peer, .context = context, .data = data};
    struct fi_msg_tagged tagged = {.msg_iov = parts, .iov_count = n, .addr = peer, .tag = tag, .ignore = ignore, .context = context, .data = data};
    if (one_in(40))
        msg.msg_iov = tagged.msg_iov = NULL;
    if (one_in(40))
        msg.iov_count = tagged.iov_count = one_in(2) ? 12 : UINT64_MAX;
    switch (below(18)) {
    case 0:
        (void)TRY(fi_recv(ep, buf, len, NULL, peer, context));
        break;
    case 1:
        (void)TRY(fi_recvv(ep, parts, NULL, n, peer, context));
        break;
    case 2:
        (void)TRY(fi_recvmsg(ep, &msg, flags));
        break;
    case 3:
        (void)TRY(fi_send(ep, buf, len, NULL, peer, context));
        break;
    case 4:
        (void)TRY(fi_sendv(ep, parts, NULL, n, peer, context));
        break;
    case 5:
        (void)TRY(fi_sendmsg(ep, &msg, flags));
        break;
    case 6:
        (void)TRY(fi_inject(ep, buf, len, peer));
        break;
    case 7:
        (void)TRY(fi_senddata(ep, buf, len, NULL, data, peer, context));
        break;
    case 8:
        (void)TRY(fi_injectdata(ep, buf, len, data, peer));
        break;
    case 9:
        (void)TRY(fi_trecv(ep, buf, len, NULL, peer, tag, ignore, context));
        break;
    case 10:
        (void)TRY(fi_trecvv(ep, parts, NULL, n, peer, tag, ignore, context));
        break;
    case 11:
    case 12:
        (void)TRY(fi_trecvmsg(ep, &tagged, flags));
        break;
    case 13:
        (void)TRY(fi_tsend(ep, buf, len, NULL, peer, tag, context));
        break;
    case 14:
        (void)TRY(fi_tsendv(ep, parts, NULL, n, peer, tag, context));
        break;
    case 15:
        (void)TRY(fi_tsendmsg(ep, &tagged, flags));
        break;
    case 16:
        (void)TRY(fi_tinject(ep, buf, len, peer, tag));
        break;
    default:
        (void)TRY(fi_tsenddata(ep, buf, len, NULL, data, peer, tag, context));
    }
}

static void access_memory(struct fid_ep *ep)
{
    size_t len = any_length();
    void *buf = place(len), *context = place(1);
    fi_addr_t peer = any_peer();
    uint64_t addr = one_in(8) ? any_number() : below(400), key = any_key(), flags = any_flags(), data = word();
    struct iovec parts[12];
    size_t n = pieces(parts);
    struct fi_rma_iov there = {addr, one_in(2) ? len : any_number(), key};
    if (one_in(2)) {
        there.len = 0;
        for (size_t i = 0; i < n; i++)
            there.len += parts[i].iov_len;
    }
    struct fi_msg_rma msg = {
        .msg_iov = parts, .iov_count = n, .addr = peer, .rma_iov = &there, .rma_iov_count = !one_in(10), .context = context, .data = data};
    switch (below(9)) {
    case 0:
        (void)TRY(fi_read(ep, buf, len, NULL, peer, addr, key, context));
        break;
    case 1:
        (void)TRY(fi_readv(ep, parts, NULL, n, peer, addr, key, context));
        break;
    case 2:
        (void)TRY(fi_readmsg(ep, &msg, flags));
        break;
    case 3:
        (void)TRY(fi_write(ep, buf, len, NULL, peer, addr, key, context));
        break;
    case 4:
        (void)TRY(fi_writev(ep, parts, NULL, n, peer, addr, key, context));
        break;
    case 5:
        (void)TRY(fi_writemsg(ep, &msg, flags));
        break;
    case 6:
        (void)TRY(fi_inject_write(ep, buf, len, peer, addr, key));
        break;
    case 7:
        (void)TRY(fi_writedata(ep, buf, len, NULL, data, peer, addr, key, context));
        break;
    default:
        (void)TRY(fi_inject_writedata(ep, buf, len, data, peer, addr, key));
    }
}

static void change_memory(struct fid_ep *ep)
{
    /* Elements of at most 16 bytes, or of 32 of the complex types. */
    size_t count = one_in(6) ? below(ROOM / 32) : below(5), bytes = 32 * count;
    void *operand = place(bytes), *compare = place(bytes), *result = place(bytes), *context = place(1);
    enum fi_datatype type = below(one_in(10) ? 40 : 14);
    enum fi_op op = below(one_in(10) ? 40 : 20);
    fi_addr_t peer = any_peer();
    uint64_t addr = one_in(8) ? any_number() : below(400), key = any_key();
    size_t most = 0;
    switch (below(6)) {
    case 0:
        (void)TRY(fi_atomic(ep, operand, count, NULL, peer, addr, key, type, op, context));
        break;
    case 1:
        (void)TRY(fi_inject_atomic(ep, operand, count, peer, addr, key, type, op));
        break;
    case 2:
        (void)TRY(fi_fetch_atomic(ep, operand, count, NULL, result, NULL, peer, addr, key, type, op, context));
        break;
    case 3:
        (void)TRY(fi_compare_atomic(ep, operand, count, NULL, compare, NULL, result, NULL, peer, addr, key, type, op, context));
        break;
    case 4: {
        struct fi_ioc ioc[3], out[3];
        size_t n = below(4), each = count / 4;
        for (size_t i = 0; i < 3; i++) {
            ioc[i] = (struct fi_ioc){place(32 * each), each};
            out[i] = (struct fi_ioc){place(32 * each), each};
        }
        struct fi_rma_ioc there = {addr, one_in(3) ? any_number() : n * each, key};
        struct fi_msg_atomic msg = {.msg_iov = ioc, .iov_count = n, .addr = peer, .datatype = type, .op = op, .context = context};
        msg.rma_iov = &there;
        msg.rma_iov_count = !one_in(10);
        if (one_in(2))
            (void)TRY(fi_atomicmsg(ep, &msg, any_flags()));
        else
            (void)TRY(fi_fetch_atomicmsg(ep, &msg, out, NULL, below(4), any_flags()));
        break;
    }
    default:
        (void)TRY(fi_atomicvalid(ep, type, op, &most));
        (void)TRY(fi_fetch_atomicvalid(ep, type, op, &most));
        (void)TRY(fi_compare_atomicvalid(ep, type, op, &most));
    }
}

static void operate(void)
{
    struct fid_ep *ep = some(EP);
    if (!ep)
        return;
    switch (below(6)) {
    case 0:
    case 1:
    case 2:
        message(ep);
        break;
    case 3:
        access_memory(ep);
        break;
    case 4:
        change_memory(ep);
        break;
    default:
        (void)TRY(fi_cancel(&ep->fid, place(1)));
    }
}

static void look(void)
{
    struct fid_cq *cq = some(CQ);
    struct fid_cntr *cntr = some(CNTR);
    struct fid_poll *poll = some(POLL);
    struct fid_eq *eq = some(EQ);
    struct fi_cq_tagged_entry entries[9];
    struct fi_cq_err_entry failure = {0};
    struct fi_eq_err_entry event_failure = {0};
    fi_addr_t sources[9];
    void *news[9];
    struct fid *to = object_count > 0 ? objects[below(object_count)].fid : NULL;
    uint32_t event = below(10);
    switch (below(12)) {
    case 0:
    case 1:
        if (cq)
            (void)TRY(fi_cq_read(cq, entries, below(9)));
        break;
    case 2:
        if (cq)
            (void)TRY(fi_cq_readfrom(cq, entries, below(9), sources));
        break;
    case 3:
    case 4:
        if (cq && TRY(fi_cq_readerr(cq, &failure, 0)) == 1) {
            char text[64];
            IS(failure.err > 0, 1);
            IS(fi_cq_strerror(cq, failure.prov_errno, failure.err_data, text, sizeof text) != NULL, 1);
        }
        break;
    case 5:
        if (cq)
            (void)TRY(fi_cq_sread(cq, entries, below(9), NULL, below(2)));
        break;
    case 6:
        if (cntr && one_in(2))
            (void)TRY(fi_cntr_wait(cntr, any_number(), below(2)));
        else if (cntr)
            (void)TRY(fi_cntr_add(cntr, any_number()));
        break;
    case 7:
        if (cntr && one_in(2))
            (void)TRY(fi_cntr_adderr(cntr, below(2)));
        else if (cntr)
            (void)TRY(fi_cntr_set(cntr, any_number()));
        break;
    case 8:
        if (poll && to)
            (void)TRY(one_in(2) ? fi_poll_add(poll, to, 0) : fi_poll_del(poll, to, 0));
        break;
    case 9:
        if (poll)
            (void)TRY(fi_poll(poll, news, below(9)));
        break;
    case 10:
        if (eq)
            (void)TRY(fi_eq_write(eq, event, entries, below(sizeof entries), 0));
        break;
    default:
        if (eq && one_in(2))
            (void)TRY(fi_eq_sread(eq, &event, entries, sizeof entries, below(2), one_in(3) ? FI_PEEK : 0));
        else if (eq)
            (void)TRY(fi_eq_readerr(eq, &event_failure, 0));
    }
}

static const char *const kinds[] = {"an endpoint", "a queue", "a counter", "an address vector", "memory", "a poll set", "an event queue", "a domain"};

static bool close_at(size_t at)
{
    doing = kinds[objects[at].kind];
    for (size_t i = 0; objects[at].kind == POLL && i < object_count; i++)
        (void)fi_poll_del((struct fid_poll *)objects[at].fid, objects[i].fid, 0);
    long long closed = code("fi_close", fi_close(objects[at].fid));
    if (closed != 0) {
        if (closed != -FI_EBUSY)
            fprintf(stderr, "%s is not closed\n", doing);
        IS(closed, -FI_EBUSY);
        return false;
    }
    objects[at] = objects[--object_count];
    return true;
}

static void *thread(void *number)
{
    room = malloc(ROOM + 2 * CANARY);
    memset(room, 0x5a, ROOM + 2 * CANARY);
    for (size_t i = 0; i < calls; i++) {
        switch (below(16)) {
        case 0:
            if (object_count < OBJECTS / 2 || one_in(3))
                open_one();
            break;
        case 1:
            if (object_count < OBJECTS / 3 || one_in(8))
                open_whole();
            break;
        case 2:
            if (object_count > 0 && one_in(4))
                (void)close_at(below(object_count));
            break;
        case 3:
            configure();
            break;
        case 4:
            addresses();
            break;
        case 5:
        case 6:
        case 7:
        case 8:
            look();
            break;
        default:
            operate();
        }
    }
    /* What others use is closed after them. */
    while (object_count > 0) {
        bool any = false;
        for (size_t at = object_count; at > 0; at--)
            any |= at <= object_count && close_at(at - 1);
        for (size_t at = 0; !any && at < object_count; at++)
            fprintf(stderr, "left: %s\n", kinds[objects[at].kind]);
        IS(any, 1);
    }
    for (size_t i = 0; i < CANARY; i++) {
        IS(room[i], 0x5a);
        IS(room[CANARY + ROOM + i], 0x5a);
    }
    free(room);
    printf("thread %zu: %llu calls, and %llu that gave an error\n", (size_t)number, (unsigned long long)tally[0], (unsigned long long)tally[1]);
    return NULL;
}

struct start {
    uint64_t seed;
    size_t number;
};

static void *begin(void *p)
{
    struct start *start = p;
    chance = start->seed;
    return thread((void *)start->number);
}

int main(int argc, char **argv)
{
    IS(argc == 3 || argc == 4, 1);
    size_t threads = argc == 4 ? strtoull(argv[3], NULL, 10) : 1;
    struct start starts[THREADS];
    pthread_t ids[THREADS];
    IS(threads >= 1 && threads <= THREADS, 1);
    calls = strtoull(argv[2], NULL, 10);
    open_domain(FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT);
    for (size_t i = 0; i < threads; i++) {
        starts[i] = (struct start){strtoull(argv[1], NULL, 10) * THREADS + i, i};
        IS(pthread_create(&ids[i], NULL, begin, &starts[i]), 0);
    }
    for (size_t i = 0; i < threads; i++)
        IS(pthread_join(ids[i], NULL), 0);
    close_domain();
    printf("all has been closed\n");
    return 0;
}
