/* Random writes, reads and atomic operations on the memory of three endpoints, itself among them, with messages between them: memory is as
   if they had been made one by one, in the order that the provider promises.
   Usage: random_memory SEED STEPS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "chance.h"
#include "side.h"

/* Bytes and words of an endpoint that one initiator alone changes, and words that all add to. */
enum { ENDS = 3, BYTES = 30000, WORDS = 8, OPERATIONS = 60000, AHEAD = 40, CANARY = 64 };
enum kind { WRITE, READ, ATOMIC, SEND, ADD, REFUSED };

struct area {
    unsigned char bytes[BYTES];
    uint64_t words[WORDS];
};

struct memory {
    struct area of[ENDS];
    uint64_t sums[WORDS];
    unsigned char canary[CANARY];
};

struct operation {
    enum kind kind;
    int from, to;
    bool ended, told, has_data;
    /* Bytes or words of the area. */
    size_t at, len;
    /* Of a write whose end says that it is there: how many its initiator has made there, itself among them. */
    uint64_t number;
    unsigned char *buffer;
    /* What a read or an atomic operation finds. */
    unsigned char *due;
    struct operation *next;
};

static struct end {
    struct side side;
    struct fid_mr *mr;
    struct fid_cntr *writes, *reads, *written, *read;
    fi_addr_t peers[ENDS];
    uint64_t key, started_writes, started_reads, refused_writes, refused_reads, due_written, due_read, got_data, due_data;
    struct memory memory;
} ends[ENDS];

/* What memory is, and by which write of its initiator each byte was written. */
static struct shadow {
    struct memory memory;
    uint64_t by[ENDS][BYTES], made[ENDS], settled[ENDS];
} shadows[ENDS];

static struct operation all[OPERATIONS], *under_way;
static size_t count, pending, unnamed_due;

static struct operation *new_operation(enum kind kind)
{
    struct operation *o = &all[count++];
    *o = (struct operation){.kind = kind, .from = below(ENDS), .to = below(ENDS)};
    return o;
}

static void begins(struct operation *o)
{
    o->next = under_way;
    under_way = o;
    pending++;
}

static void end_of(struct operation *o)
{
    IS(o->ended, 0);
    o->ended = true;
    struct operation **p = &under_way;
    while (*p != o)
        p = &(*p)->next;
    *p = o->next;
    pending--;
    free(o->buffer);
    free(o->due);
    o->buffer = o->due = NULL;
}

/* The last operation was not started. */
static bool refused(struct operation *o, ssize_t begun)
{
    if (begun != -FI_EAGAIN) {
        IS(begun, 0);
        return false;
    }
    free(o->buffer);
    free(o->due);
    count--;
    return true;
}

static size_t any_length(void)
{
    switch (below(16)) {
    case 0:
        return 1 + below(BYTES);
    case 1:
        return 4000 + below(300);
    case 2:
        return 8100 + below(200);
    default:
        return 1 + below(300);
    }
}

static uint64_t offset_of(const struct operation *o)
{
    return (char *)&ends[o->to].memory.of[o->from].bytes[o->at] - (char *)&ends[o->to].memory;
}

/* Up to three pieces of a buffer. */
static size_t pieces(struct iovec parts[3], unsigned char *buffer, size_t len)
{
    size_t n = 1 + below(3), at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t size = i == n - 1 ? len - at : below(len - at + 1);
        parts[i] = (struct iovec){buffer + at, size};
        at += size;
    }
    return n;
}

static void start_write(void)
{
    struct operation *o = new_operation(WRITE);
    struct end *e = &ends[o->from], *to = &ends[o->to];
    struct shadow *s = &shadows[o->to];
    o->len = any_length();
    o->at = below(BYTES - o->len + 1);
    /* Nothing promises an order of reads and writes. */
    for (struct operation *p = under_way; p; p = p->next)
        if (p->kind == READ && p->from == o->from && p->to == o->to && p->at < o->at + o->len && o->at < p->at + p->len) {
            count--;
            return;
        }
    o->buffer = malloc(o->len);
    for (size_t i = 0; i < o->len; i++)
        o->buffer[i] = word();
    unsigned char *sent = malloc(o->len);
    memcpy(sent, o->buffer, o->len);
    fi_addr_t peer = e->peers[o->to];
    uint64_t addr = offset_of(o);
    bool inject = o->len <= info->tx_attr->inject_size && one_in(3);
    o->has_data = one_in(4);
    ssize_t begun;
    o->told = true;
    struct iovec parts[3];
    if (one_in(2)) {
        static const uint64_t levels[] = {0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_DELIVERY_COMPLETE};
        uint64_t level = levels[below(5)];
        struct fi_rma_iov there = {addr, o->len, to->key};
        size_t n = pieces(parts, o->buffer, o->len);
        struct fi_msg_rma call = {
            .msg_iov = parts, .iov_count = n, .addr = peer, .rma_iov = &there, .rma_iov_count = 1, .context = o, .data = count - 1};
        begun = fi_writemsg(e->side.ep, &call, level | FI_COMPLETION | (inject ? FI_INJECT : 0) | (o->has_data ? FI_REMOTE_CQ_DATA : 0));
        /* Once it is there, all that was written before it is. */
        o->number = level == FI_DELIVERY_COMPLETE ? s->made[o->from] + 1 : 0;
    } else if (inject) {
        o->told = false;
        begun = o->has_data ? fi_inject_writedata(e->side.ep, o->buffer, o->len, count - 1, peer, addr, to->key)
                            : fi_inject_write(e->side.ep, o->buffer, o->len, peer, addr, to->key);
    } else if (o->has_data) {
        begun = fi_writedata(e->side.ep, o->buffer, o->len, NULL, count - 1, peer, addr, to->key, o);
    } else if (one_in(2)) {
        size_t n = pieces(parts, o->buffer, o->len);
        begun = fi_writev(e->side.ep, parts, NULL, n, peer, addr, to->key, o);
    } else {
        begun = fi_write(e->side.ep, o->buffer, o->len, NULL, peer, addr, to->key, o);
    }
    if (refused(o, begun)) {
        free(sent);
        return;
    }
    uint64_t number = ++s->made[o->from];
    memcpy(&s->memory.of[o->from].bytes[o->at], sent, o->len);
    for (size_t i = 0; i < o->len; i++)
        s->by[o->from][o->at + i] = number;
    free(sent);
    e->started_writes++;
    to->due_written++;
    to->due_data += o->has_data;
    if (inject)
        memset(o->buffer, 0xee, o->len);
    /* It is looked at when its data comes. */
    o->at = number;
    if (o->told)
        begins(o);
    else
        free(o->buffer), o->buffer = NULL, o->ended = true;
}

/* What its initiator wrote first is in this memory, as far as nothing was written over it. */
static void has_come(int from, int to, uint64_t number)
{
    const struct shadow *s = &shadows[to];
    const unsigned char *is = ends[to].memory.of[from].bytes, *due = s->memory.of[from].bytes;
    for (size_t i = 0; i < BYTES; i++)
        if (s->by[from][i] <= number && is[i] != due[i]) {
            fprintf(stderr, "byte %zu of %d at %d is %u, not %u: write %llu, and %llu has come\n", i, from, to, is[i], due[i],
                    (unsigned long long)s->by[from][i], (unsigned long long)number);
            exit(1);
        }
}

static void start_read(void)
{
    struct operation *o = new_operation(READ);
    struct end *e = &ends[o->from], *to = &ends[o->to];
    struct shadow *s = &shadows[o->to];
    o->len = any_length();
    o->at = below(BYTES - o->len + 1);
    for (size_t i = 0; i < o->len; i++)
        if (s->by[o->from][o->at + i] > s->settled[o->from]) {
            count--;
            return;
        }
    o->buffer = malloc(o->len);
    o->due = malloc(o->len);
    memcpy(o->due, &s->memory.of[o->from].bytes[o->at], o->len);
    fi_addr_t peer = e->peers[o->to];
    uint64_t addr = offset_of(o);
    struct iovec parts[3];
    size_t n = pieces(parts, o->buffer, o->len);
    ssize_t begun;
    if (one_in(3)) {
        struct fi_rma_iov there = {addr, o->len, to->key};
        struct fi_msg_rma call = {.msg_iov = parts, .iov_count = n, .addr = peer, .rma_iov = &there, .rma_iov_count = 1, .context = o};
        begun = fi_readmsg(e->side.ep, &call, FI_COMPLETION);
    } else if (one_in(2)) {
        begun = fi_readv(e->side.ep, parts, NULL, n, peer, addr, to->key, o);
    } else {
        begun = fi_read(e->side.ep, o->buffer, o->len, NULL, peer, addr, to->key, o);
    }
    if (refused(o, begun))
        return;
    e->started_reads++;
    to->due_read++;
    begins(o);
}

static uint64_t applied(uint64_t was, uint64_t operand, uint64_t compare, enum fi_op op)
{
    switch (op) {
    case FI_MIN:
        return operand < was ? operand : was;
    case FI_MAX:
        return operand > was ? operand : was;
    case FI_SUM:
        return was + operand;
    case FI_BXOR:
        return was ^ operand;
    case FI_BOR:
        return was | operand;
    case FI_ATOMIC_WRITE:
        return operand;
    case FI_ATOMIC_READ:
        return was;
    case FI_CSWAP:
        return was == compare ? operand : was;
    case FI_MSWAP:
        return (operand & compare) | (was & ~compare);
    default:
        abort();
    }
}

static void start_atomic(void)
{
    static const enum fi_op ops[] = {FI_MIN, FI_MAX, FI_SUM, FI_BXOR, FI_BOR, FI_ATOMIC_WRITE, FI_ATOMIC_READ, FI_CSWAP, FI_MSWAP};
    struct operation *o = new_operation(ATOMIC);
    struct end *e = &ends[o->from], *to = &ends[o->to];
    enum fi_op op = ops[below(9)];
    bool compares = op == FI_CSWAP || op == FI_MSWAP, fetches = compares || op == FI_ATOMIC_READ || one_in(2);
    o->len = 1 + below(3);
    o->at = below(WORDS - o->len + 1);
    o->buffer = malloc(3 * o->len * sizeof(uint64_t));
    o->due = malloc(o->len * sizeof(uint64_t));
    uint64_t *operand = (uint64_t *)o->buffer, *compare = operand + o->len, *result = compare + o->len, *due = (uint64_t *)o->due;
    uint64_t *shadow = &shadows[o->to].memory.of[o->from].words[o->at], now[3];
    for (size_t i = 0; i < o->len; i++) {
        operand[i] = word() >> below(64);
        compare[i] = one_in(2) ? shadow[i] : word();
        due[i] = shadow[i];
        now[i] = applied(shadow[i], operand[i], compare[i], op);
    }
    fi_addr_t peer = e->peers[o->to];
    uint64_t addr = (char *)&to->memory.of[o->from].words[o->at] - (char *)&to->memory, key = to->key;
    ssize_t begun;
    o->told = true;
    if (compares) {
        begun = fi_compare_atomic(e->side.ep, operand, o->len, NULL, compare, NULL, result, NULL, peer, addr, key, FI_UINT64, op, o);
    } else if (fetches) {
        begun = fi_fetch_atomic(e->side.ep, operand, o->len, NULL, result, NULL, peer, addr, key, FI_UINT64, op, o);
    } else if (one_in(2)) {
        o->told = false;
        begun = fi_inject_atomic(e->side.ep, operand, o->len, peer, addr, key, FI_UINT64, op);
    } else {
        begun = fi_atomic(e->side.ep, operand, o->len, NULL, peer, addr, key, FI_UINT64, op, o);
    }
    if (refused(o, begun))
        return;
    memcpy(shadow, now, o->len * sizeof *now);
    if (!fetches)
        free(o->due), o->due = NULL;
    *(fetches ? &e->started_reads : &e->started_writes) += 1;
    *(fetches ? &to->due_read : &to->due_written) += 1;
    if (o->told)
        begins(o);
    else
        free(o->buffer), o->buffer = NULL, o->ended = true;
}

/* Everybody adds to these, so that no order matters. */
static void start_add(void)
{
    struct operation *o = new_operation(ADD);
    struct end *e = &ends[o->from], *to = &ends[o->to];
    o->at = below(WORDS);
    o->buffer = malloc(sizeof(uint64_t));
    uint64_t operand = word(), addr = (char *)&to->memory.sums[o->at] - (char *)&to->memory;
    memcpy(o->buffer, &operand, sizeof operand);
    if (refused(o, fi_atomic(e->side.ep, o->buffer, 1, NULL, e->peers[o->to], addr, to->key, FI_UINT64, FI_SUM, o)))
        return;
    shadows[o->to].memory.sums[o->at] += operand;
    e->started_writes++;
    to->due_written++;
    begins(o);
}

/* A message says how many writes were made before it, which are there when it comes. */
static void start_send(void)
{
    struct operation *o = new_operation(SEND);
    o->len = one_in(8) ? 20000 : 16;
    o->buffer = calloc(1, o->len);
    uint64_t said[2] = {o->from, shadows[o->to].made[o->from]};
    memcpy(o->buffer, said, sizeof said);
    struct end *e = &ends[o->from];
    if (!refused(o, fi_tsend(e->side.ep, o->buffer, o->len, NULL, e->peers[o->to], 1, o)))
        begins(o);
}

/* What nothing permits: beyond the end, or by a key that is nobody's. It changes nothing, and fails. */
static void start_refused(void)
{
    struct operation *o = new_operation(REFUSED);
    struct end *e = &ends[o->from], *to = &ends[o->to];
    o->len = any_length();
    o->buffer = malloc(o->len + sizeof(uint64_t));
    memset(o->buffer, 0, o->len);
    bool by_key = one_in(2);
    uint64_t key = by_key ? 1000 : to->key, addr = by_key ? 0 : sizeof(struct memory) - below(o->len);
    fi_addr_t peer = e->peers[o->to];
    ssize_t begun;
    size_t way = below(4);
    o->told = true;
    switch (way) {
    case 0:
        begun = fi_write(e->side.ep, o->buffer, o->len, NULL, peer, addr, key, o);
        break;
    case 1:
        begun = fi_read(e->side.ep, o->buffer, o->len, NULL, peer, addr, key, o);
        break;
    case 2:
        addr = by_key ? 0 : sizeof(struct memory);
        begun = fi_fetch_atomic(e->side.ep, o->buffer, 1, NULL, o->buffer, NULL, peer, addr, key, FI_UINT64, FI_SUM, o);
        break;
    default:
        o->told = false;
        begun = fi_inject_write(e->side.ep, o->buffer, 1, peer, by_key ? 0 : sizeof(struct memory), key);
    }
    if (refused(o, begun))
        return;
    *(way == 0 || way == 3 ? &e->refused_writes : &e->refused_reads) += 1;
    if (o->told) {
        begins(o);
    } else {
        unnamed_due++;
        free(o->buffer), o->buffer = NULL, o->ended = true;
    }
}

static void post_receive(int at)
{
    static unsigned char buffers[ENDS][20000];
    IS(fi_trecv(ends[at].side.ep, buffers[at], sizeof buffers[at], NULL, FI_ADDR_UNSPEC, 1, 0, buffers[at]), 0);
}

/* Handles one completion of this endpoint. */
static bool look(int at)
{
    struct end *e = &ends[at];
    struct fi_cq_tagged_entry entry;
    ssize_t got = fi_cq_read(e->side.cq, &entry, 1);
    if (got == -FI_EAGAIN)
        return false;
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry failure = {0};
        IS(fi_cq_readerr(e->side.cq, &failure, 0), 1);
        IS(failure.err, FI_EKEYREJECTED);
        struct operation *o = failure.op_context;
        if (o) {
            IS(o->kind, REFUSED);
            IS(o->from, at);
            end_of(o);
        } else {
            unnamed_due--;
        }
        return true;
    }
    IS(got, 1);
    if (entry.flags & FI_REMOTE_CQ_DATA) {
        IS(entry.flags & FI_REMOTE_WRITE, FI_REMOTE_WRITE);
        IS(entry.data < count, 1);
        struct operation *o = &all[entry.data];
        IS(o->kind == WRITE && o->has_data && o->to == at, 1);
        o->has_data = false;
        e->got_data++;
        has_come(o->from, at, o->at);
        return true;
    }
    if (entry.flags & FI_RECV) {
        uint64_t said[2];
        memcpy(said, entry.op_context, sizeof said);
        has_come(said[0], at, said[1]);
        post_receive(at);
        return true;
    }
    struct operation *o = entry.op_context;
    IS(o->from, at);
    switch (o->kind) {
    case WRITE:
        if (o->number) {
            has_come(at, o->to, o->number);
            uint64_t *settled = &shadows[o->to].settled[at];
            *settled = o->number > *settled ? o->number : *settled;
        }
        break;
    case READ:
        IS(memcmp(o->buffer, o->due, o->len), 0);
        break;
    case ATOMIC:
        if (o->due)
            IS(memcmp(o->buffer + 2 * o->len * sizeof(uint64_t), o->due, o->len * sizeof(uint64_t)), 0);
        break;
    default:
        IS(o->kind == SEND || o->kind == ADD, 1);
    }
    end_of(o);
    return true;
}

static void settle(void)
{
    for (size_t idle = 0; idle < 2000 || pending > 0 || unnamed_due > 0;) {
        bool any = false;
        for (int i = 0; i < ENDS; i++)
            any |= look(i);
        idle = any ? 0 : idle + 1;
        IS(idle < 100000000, 1);
    }
}

static void register_memory(struct end *e)
{
    uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    e->key = ENDS * below(300) + (e - ends);
    IS(fi_mr_reg(domain, &e->memory, sizeof e->memory, access, 0, e->key, FI_RMA_EVENT, &e->mr, NULL), 0);
    IS(fi_mr_bind(e->mr, &e->side.ep->fid, 0), 0);
    IS(fi_mr_enable(e->mr), 0);
}

static void check_all(void)
{
    for (int i = 0; i < ENDS; i++) {
        struct end *e = &ends[i];
        for (int from = 0; from < ENDS; from++)
            has_come(from, i, UINT64_MAX);
        IS(memcmp(&e->memory, &shadows[i].memory, sizeof e->memory), 0);
        IS(fi_cntr_read(e->writes), e->started_writes);
        IS(fi_cntr_read(e->reads), e->started_reads);
        IS(fi_cntr_readerr(e->writes), e->refused_writes);
        IS(fi_cntr_readerr(e->reads), e->refused_reads);
        IS(fi_cntr_read(e->written), e->due_written);
        IS(fi_cntr_read(e->read), e->due_read);
        IS(e->got_data, e->due_data);
    }
}

static void open_ends(void)
{
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP};
    for (int i = 0; i < ENDS; i++) {
        struct end *e = &ends[i];
        open_side(&e->side, info);
        struct fid_cntr **counters[] = {&e->writes, &e->reads, &e->written, &e->read};
        static const uint64_t counted[] = {FI_WRITE, FI_READ, FI_REMOTE_WRITE, FI_REMOTE_READ};
        for (int k = 0; k < 4; k++) {
            IS(fi_cntr_open(domain, &counter, counters[k], NULL), 0);
            IS(fi_ep_bind(e->side.ep, &(*counters[k])->fid, counted[k]), 0);
        }
        IS(fi_enable(e->side.ep), 0);
        register_memory(e);
        post_receive(i);
    }
    for (int i = 0; i < ENDS; i++)
        for (int k = 0; k < ENDS; k++)
            ends[i].peers[k] = meet(&ends[i].side, &ends[k].side);
}

static void step(void)
{
    if (pending < AHEAD && count < OPERATIONS) {
        static void (*const starts[])(void) = {start_write, start_write, start_write, start_read, start_atomic, start_atomic, start_add, start_send};
        if (one_in(20))
            start_refused();
        else
            starts[below(8)]();
    }
    while (!one_in(3))
        (void)look(below(ENDS));
    /* Memory is given back, and offered by another key. */
    if (one_in(300)) {
        settle();
        check_all();
        struct end *e = &ends[below(ENDS)];
        IS(fi_close(&e->mr->fid), 0);
        register_memory(e);
    }
}

int main(int argc, char **argv)
{
    IS(argc, 3);
    chance = strtoull(argv[1], NULL, 10);
    size_t steps = strtoull(argv[2], NULL, 10);
    open_domain(FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
    open_ends();
    for (size_t i = 0; i < steps; i++)
        step();
    settle();
    check_all();
    printf("%zu operations: all are right\n", count);
    for (int i = 0; i < ENDS; i++) {
        struct end *e = &ends[i];
        IS(fi_close(&e->mr->fid), 0);
        close_side(&e->side);
        IS(fi_close(&e->writes->fid), 0);
        IS(fi_close(&e->reads->fid), 0);
        IS(fi_close(&e->written->fid), 0);
        IS(fi_close(&e->read->fid), 0);
    }
    close_domain();
    return 0;
}
