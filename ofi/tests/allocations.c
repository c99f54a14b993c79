/* No operation allocates once tables have grown: the C library's allocator is counted while every kind is made again and again. */
#include <stdint.h>
#include <stdlib.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "../../tests/c/counted_allocations.h"
#include "side.h"

enum { MANY = 64, MOST = 100000, KEY = 5, WARM = 400, ROUNDS = 200 };
static struct side sides[2];
/* The other one, as each of them knows it. */
static fi_addr_t other[2];
static char in[MANY][MOST], out[MOST];
static uint64_t memory, was;

/* Begins an operation when there is room for it; both make progress meanwhile. */
#define BEGIN(call)                                                                       \
    do {                                                                                  \
        ssize_t begun;                                                                    \
        while ((begun = (call)) == -FI_EAGAIN) {                                          \
            IS(fi_cq_read(sides[0].cq, NULL, 0), fi_cq_read(sides[1].cq, NULL, 0));       \
        }                                                                                 \
        IS(begun, 0);                                                                     \
    } while (0)

/* Takes so many completions of each side. */
static void end(int first, int second)
{
    struct fi_cq_tagged_entry entries[16];
    int due[2] = {first, second};
    while (due[0] || due[1]) {
        for (int i = 0; i < 2; i++) {
            ssize_t got = fi_cq_read(sides[i].cq, entries, 16);
            if (got != -FI_EAGAIN) {
                IS(got > 0 && got <= due[i], 1);
                due[i] -= (int)got;
            }
        }
    }
}

static void receive(int i, size_t len)
{
    BEGIN(fi_trecv(sides[1].ep, in[i], len, NULL, other[1], 7, 0, NULL));
}

static void send(size_t len)
{
    BEGIN(fi_tsend(sides[0].ep, out, len, NULL, other[0], 7, NULL));
}

static void expected(size_t len)
{
    for (int i = 0; i < MANY; i++)
        receive(i, len);
    for (int i = 0; i < MANY; i++)
        send(len);
    end(MANY, MANY);
}

static void unexpected(size_t len)
{
    for (int i = 0; i < 8; i++)
        send(len);
    (void)fi_cq_read(sides[1].cq, NULL, 0);
    for (int i = 0; i < 8; i++)
        receive(i, len);
    end(8, 8);
}

static void untagged(size_t len)
{
    BEGIN(fi_recv(sides[1].ep, in[0], len, NULL, FI_ADDR_UNSPEC, NULL));
    BEGIN(fi_send(sides[0].ep, out, len, NULL, other[0], NULL));
    end(1, 1);
}

static void injected(size_t len)
{
    for (int i = 0; i < MANY; i++)
        receive(i, len);
    for (int i = 0; i < MANY; i++)
        BEGIN(fi_tinject(sides[0].ep, out, len, other[0], 7));
    end(0, MANY);
}

/* As MPICH calls. */
static void described(size_t len)
{
    struct iovec from = {out, len}, to = {in[0], len};
    struct fi_msg_tagged sent = {.msg_iov = &from, .iov_count = 1, .addr = other[0], .tag = 7};
    struct fi_msg_tagged got = {.msg_iov = &to, .iov_count = 1, .addr = other[1], .tag = 7};
    BEGIN(fi_trecvmsg(sides[1].ep, &got, 0));
    BEGIN(fi_tsendmsg(sides[0].ep, &sent, 0));
    end(1, 1);
}

static void remote(size_t len)
{
    BEGIN(fi_write(sides[0].ep, out, len, NULL, other[0], 0, KEY, NULL));
    end(1, 0);
    BEGIN(fi_read(sides[0].ep, in[0], len, NULL, other[0], 0, KEY, NULL));
    end(1, 0);
    BEGIN(fi_inject_write(sides[0].ep, out, 8, other[0], 0, KEY));
}

static void atomics(size_t len)
{
    (void)len;
    uint64_t one = 1;
    BEGIN(fi_fetch_atomic(sides[0].ep, &one, 1, NULL, &was, NULL, other[0], 0, KEY + 1, FI_UINT64, FI_SUM, NULL));
    end(1, 0);
    BEGIN(fi_compare_atomic(sides[0].ep, &one, 1, NULL, &one, NULL, &was, NULL, other[0], 0, KEY + 1, FI_UINT64, FI_CSWAP, NULL));
    end(1, 0);
    struct fi_ioc operand = {&one, 1};
    struct fi_rma_ioc place = {.count = 1, .key = KEY + 1};
    struct fi_msg_atomic asked = {
        .msg_iov = &operand, .iov_count = 1, .addr = other[0], .rma_iov = &place, .rma_iov_count = 1,
        .datatype = FI_UINT64, .op = FI_SUM};
    BEGIN(fi_atomicmsg(sides[0].ep, &asked, 0));
    end(1, 0);
}

static void none(const char *what, void (*make)(size_t), size_t len)
{
    for (int i = 0; i < WARM; i++)
        make(len);
    allocations = 0;
    counting = 1;
    for (int i = 0; i < ROUNDS; i++)
        make(len);
    counting = 0;
    if (allocations) {
        fprintf(stderr, "%s of %zu bytes: %ld allocations\n", what, len, allocations);
        exit(1);
    }
}

int main(void)
{
    static char shared[MOST];
    char name[64];
    struct fid_mr *mrs[2];
    counting = 1;
    free(malloc(1));
    IS(allocations, 1);
    counting = 0;
    open_domain(FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC);
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    for (int i = 0; i < 2; i++) {
        size_t len = sizeof name;
        IS(fi_getname(&sides[i].ep->fid, name, &len), 0);
        IS(fi_av_insert(sides[!i].av, name, 1, &other[!i], 0, NULL), 1);
    }
    const uint64_t all = FI_REMOTE_READ | FI_REMOTE_WRITE;
    IS(fi_mr_reg(domain, shared, sizeof shared, all, 0, KEY, 0, &mrs[0], NULL), 0);
    IS(fi_mr_reg(domain, &memory, sizeof memory, all, 0, KEY + 1, 0, &mrs[1], NULL), 0);

    const size_t lengths[] = {0, 8, 3000, MOST};
    for (int i = 0; i < 4; i++) {
        none("messages", expected, lengths[i]);
        none("messages that nobody has asked for", unexpected, lengths[i]);
        none("messages without a tag", untagged, lengths[i]);
        none("described messages", described, lengths[i]);
    }
    none("injected messages", injected, 8);
    none("remote memory", remote, 8);
    none("remote memory", remote, MOST);
    none("atomic operations", atomics, 8);

    IS(fi_close(&mrs[0]->fid), 0);
    IS(fi_close(&mrs[1]->fid), 0);
    close_side(&sides[0]);
    close_side(&sides[1]);
    close_domain();
    puts("no operation allocates");
    return 0;
}
