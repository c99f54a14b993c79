/* Two endpoints of a program: messages of all lengths keep their order, and the one that closes ends what the other awaits of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "side.h"

/* A short message behind a long one, which is still on its way: lengths that travel in a header, with it and after it. */
static const size_t lengths[] = {3000, 1, 200, 0, 4096, 4, 0, 132, 128, 5000, 8, 300, 4095, 1};
enum { KINDS = sizeof lengths / sizeof *lengths, MESSAGES = 10 * KINDS, MOST = 5000 };

static struct side sides[2];
/* The other one, as each of them knows it. */
static fi_addr_t other[2];
static char in[MESSAGES][MOST], out[MESSAGES][MOST];

/* How many operations of a side have ended. Each receive gets the message that was sent as the same number, whichever ends first. */
static int ended(struct side *side, int *received)
{
    struct fi_cq_tagged_entry entry;
    ssize_t got = fi_cq_read(side->cq, &entry, 1);
    if (got == -FI_EAGAIN)
        return 0;
    IS(got, 1);
    if (entry.flags & FI_RECV) {
        size_t number = (size_t)((char *)entry.op_context - in[0]) / MOST;
        size_t len = lengths[number % KINDS];
        IS(entry.len, len);
        IS(memcmp(in[number], out[number], len), 0);
        ++*received;
    }
    return 1;
}

/* Messages with one tag, which are asked for before, after and while they come. */
static void keep_their_order(int ahead)
{
    int posted = 0, received = 0, sent = 0, started = 0;
    memset(in, 0, sizeof in);
    for (int i = 0; i < MESSAGES; i++)
        memset(out[i], i + 1, MOST);
    while (received < MESSAGES || sent < MESSAGES) {
        if (posted < MESSAGES && (posted < started + ahead || started == MESSAGES)) {
            IS(fi_trecv(sides[1].ep, in[posted], MOST, NULL, other[1], 5, 0, in[posted]), 0);
            posted++;
        }
        if (started < MESSAGES && (started <= posted - ahead || posted == MESSAGES)) {
            ssize_t begun = fi_tsend(sides[0].ep, out[started], lengths[started % KINDS], NULL, other[0], 5, NULL);
            if (begun != -FI_EAGAIN) {
                IS(begun, 0);
                started++;
            }
        }
        sent += ended(&sides[0], &received);
        (void)ended(&sides[1], &received);
    }
}

int main(void)
{
    open_domain(FI_TAGGED | FI_MSG | FI_DIRECTED_RECV);
    for (int i = 0; i < 2; i++) {
        open_side(&sides[i], info);
        IS(fi_enable(sides[i].ep), 0);
    }
    for (int i = 0; i < 2; i++) {
        char name[64];
        size_t len = sizeof name;
        IS(fi_getname(&sides[1 - i].ep->fid, name, &len), 0);
        IS(fi_av_insert(sides[i].av, name, 1, &other[i], 0, NULL), 1);
    }
    keep_their_order(3);
    keep_their_order(0);
    keep_their_order(-20);

    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    IS(fi_trecv(sides[1].ep, in[0], MOST, NULL, other[1], 6, 0, in[0]), 0);
    close_side(&sides[0]);
    IS(fi_cq_sread(sides[1].cq, &entry, 1, NULL, -1), -FI_EAVAIL);
    IS(fi_cq_readerr(sides[1].cq, &failed, 0), 1);
    IS(failed.op_context == in[0], 1);
    IS(failed.err, FI_EHOSTUNREACH);
    close_side(&sides[1]);
    close_domain();
    puts("a pair is right");
    return 0;
}
