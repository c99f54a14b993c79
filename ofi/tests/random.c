/* Random sends, receives, probes and cancellations among three endpoints, itself among them: each message comes once, whole, to a receive that
   it matches, and in the order in which libfabric matches (FI_ORDER_SAS).
   Usage: random SEED STEPS. PROVIDER names another provider, of which less is asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <rdma/fi_errno.h>

#include "chance.h"
#include "random_model.h"
#include "side.h"

/* A length of each way that messages take. */
static size_t any_length(void)
{
    switch (below(8)) {
    case 0:
        return below(8);
    case 1:
        return 4000 + below(300);
    case 2:
        return 8000 + below(400);
    case 3:
        return below(MOST + 1);
    default:
        return below(300);
    }
}

static struct end {
    struct side side;
    struct fid_cntr *sends, *receives;
    fi_addr_t peers[ENDS];
    uint64_t sent, received;
} ends[ENDS];

static void start_send(void)
{
    if (message_count == MESSAGES || message_count - taken_count > AHEAD)
        return;
    int from = below(ENDS), to = below(ENDS);
    struct message *m = new_message(from, to, one_in(3) ? MSG : TAGGED);
    m->tag = below(TAGS);
    m->len = any_length();
    bool with_data = m->len < sizeof m->number || one_in(4);
    m->has_data = with_data;
    m->buffer = malloc(m->len + 1);
    fill(m);
    struct end *e = &ends[from];
    fi_addr_t peer = e->peers[to];
    ssize_t begun;
    bool inject = m->len <= info->tx_attr->inject_size && one_in(3), by_flags = one_in(2), silent = false;
    size_t half = below(m->len + 1);
    struct iovec parts[2] = {{m->buffer, half}, {m->buffer + half, m->len - half}};
    size_t count = info->tx_attr->iov_limit > 1 && one_in(4) ? 2 : 1;
    if (count == 1)
        parts[0].iov_len = m->len;
    if (by_flags) {
        static const uint64_t levels[] = {0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE};
        uint64_t flags = (inject ? FI_INJECT : levels[below(other_provider ? 3 : 4)]) | FI_COMPLETION;
        if (with_data)
            flags |= FI_REMOTE_CQ_DATA;
        if (m->lane == TAGGED) {
            struct fi_msg_tagged call = {.msg_iov = parts, .iov_count = count, .addr = peer, .tag = m->tag, .context = m, .data = m->number};
            begun = fi_tsendmsg(e->side.ep, &call, flags);
        } else {
            struct fi_msg call = {.msg_iov = parts, .iov_count = count, .addr = peer, .context = m, .data = m->number};
            begun = fi_sendmsg(e->side.ep, &call, flags);
        }
    } else if (inject) {
        silent = true;
        if (m->lane == TAGGED && with_data)
            begun = fi_tinjectdata(e->side.ep, m->buffer, m->len, m->number, peer, m->tag);
        else if (m->lane == TAGGED)
            begun = fi_tinject(e->side.ep, m->buffer, m->len, peer, m->tag);
        else if (with_data)
            begun = fi_injectdata(e->side.ep, m->buffer, m->len, m->number, peer);
        else
            begun = fi_inject(e->side.ep, m->buffer, m->len, peer);
    } else if (with_data) {
        if (m->lane == TAGGED)
            begun = fi_tsenddata(e->side.ep, m->buffer, m->len, NULL, m->number, peer, m->tag, m);
        else
            begun = fi_senddata(e->side.ep, m->buffer, m->len, NULL, m->number, peer, m);
    } else if (count == 2) {
        if (m->lane == TAGGED)
            begun = fi_tsendv(e->side.ep, parts, NULL, count, peer, m->tag, m);
        else
            begun = fi_sendv(e->side.ep, parts, NULL, count, peer, m);
    } else {
        if (m->lane == TAGGED)
            begun = fi_tsend(e->side.ep, m->buffer, m->len, NULL, peer, m->tag, m);
        else
            begun = fi_send(e->side.ep, m->buffer, m->len, NULL, peer, m);
    }
    if (begun == -FI_EAGAIN) {
        take_back(m);
        return;
    }
    IS(begun, 0);
    e->sent++;
    m->ended = silent;
    /* What was injected is the program's again. */
    if (inject && (by_flags || silent))
        memset(m->buffer, 0xee, m->len);
    if (silent)
        free_buffer(m);
}

/* Posts a receive. One that catches all takes any message of this lane. */
static void start_receive(int at, enum lane lane, bool catches_all)
{
    if (receive_count == RECEIVES || (!catches_all && receive_count - done_count > AHEAD))
        return;
    struct receive *r = new_receive(at, lane);
    struct end *e = &ends[at];
    /* "tcp;ofi_rxm" of libfabric 1.17 keeps no order among receives from one peer and from anybody. */
    r->from = catches_all || other_provider || !one_in(3) ? ANYBODY : (int)below(ENDS);
    r->tag = below(TAGS);
    r->ignore = catches_all || one_in(3) ? ~0ull : one_in(2) ? below(TAGS) : 0;
    /* Nor does it give the data of a message that is cut off. */
    r->size = catches_all || other_provider || one_in(2) ? MOST : sizeof(uint64_t) + any_length() % (MOST - 8);
    r->multi = lane == MSG && !catches_all && one_in(4);
    if (r->multi)
        r->size = 2 * MOST;
    r->buffer = malloc(r->size + CANARY);
    memset(r->buffer, 0x5a, r->size + CANARY);
    fi_addr_t peer = r->from == ANYBODY ? FI_ADDR_UNSPEC : e->peers[r->from];
    struct iovec part = {r->buffer, r->size};
    ssize_t begun;
    if (lane == TAGGED && one_in(2)) {
        struct fi_msg_tagged call = {.msg_iov = &part, .iov_count = 1, .addr = peer, .tag = r->tag, .ignore = r->ignore, .context = r};
        begun = fi_trecvmsg(e->side.ep, &call, FI_COMPLETION);
    } else if (lane == TAGGED) {
        begun = fi_trecv(e->side.ep, r->buffer, r->size, NULL, peer, r->tag, r->ignore, r);
    } else if (r->multi || one_in(2)) {
        struct fi_msg call = {.msg_iov = &part, .iov_count = 1, .addr = peer, .context = r};
        begun = fi_recvmsg(e->side.ep, &call, FI_COMPLETION | (r->multi ? FI_MULTI_RECV : 0));
    } else {
        begun = fi_recv(e->side.ep, r->buffer, r->size, NULL, peer, r);
    }
    if (begun == -FI_EAGAIN) {
        drop(r);
        return;
    }
    IS(begun, 0);
}

/* Looks for a tagged message that is there: and leaves it, discards it, or claims it. */
static void start_probe(void)
{
    if (receive_count == RECEIVES)
        return;
    int at = below(ENDS);
    struct receive *r = new_receive(at, TAGGED);
    struct end *e = &ends[at];
    r->from = one_in(2) ? ANYBODY : (int)below(ENDS);
    r->tag = below(TAGS);
    r->ignore = one_in(2) ? ~0ull : 0;
    static const uint64_t ways[] = {0, FI_CLAIM, FI_DISCARD};
    r->probe = FI_PEEK | ways[below(3)];
    fi_addr_t peer = r->from == ANYBODY ? FI_ADDR_UNSPEC : e->peers[r->from];
    struct fi_msg_tagged call = {.addr = peer, .tag = r->tag, .ignore = r->ignore, .context = r};
    ssize_t begun = fi_trecvmsg(e->side.ep, &call, r->probe | FI_COMPLETION);
    if (begun == -FI_EAGAIN)
        drop(r);
    else
        IS(begun, 0);
}

/* Which endpoint this address is, for one of them. */
static int sender(int at, fi_addr_t source)
{
    int i = 0;
    while (i < ENDS && ends[at].peers[i] != source)
        i++;
    IS(i < ENDS, 1);
    return i;
}

/* What a probe has claimed is received, or discarded. */
static void take_claimed(struct receive *r)
{
    struct end *e = &ends[r->at];
    bool discard = one_in(4);
    r->size = discard ? 0 : MOST;
    r->buffer = malloc(MOST + CANARY);
    memset(r->buffer, 0x5a, MOST + CANARY);
    struct iovec part = {r->buffer, r->size};
    fi_addr_t peer = r->from == ANYBODY ? FI_ADDR_UNSPEC : e->peers[r->from];
    struct fi_msg_tagged call = {
        .msg_iov = &part, .iov_count = discard ? 0 : 1, .addr = peer, .tag = r->tag, .ignore = r->ignore, .context = r};
    r->probe = FI_CLAIM | (discard ? FI_DISCARD : 0);
    ssize_t begun;
    while ((begun = fi_trecvmsg(e->side.ep, &call, r->probe | FI_COMPLETION)) == -FI_EAGAIN)
        (void)fi_cq_read(e->side.cq, NULL, 0);
    IS(begun, 0);
}

static void probe_found(struct receive *r, const struct fi_cq_tagged_entry *entry, fi_addr_t source)
{
    if (r->probe & FI_PEEK) {
        IS((entry->tag ^ r->tag) & ~r->ignore, 0);
        if (r->probe & FI_CLAIM) {
            r->told_from = sender(r->at, source);
            r->told_len = entry->len;
            r->told_tag = entry->tag;
            take_claimed(r);
        } else {
            if (r->probe & FI_DISCARD)
                discards(r, sender(r->at, source), entry->tag, entry->len);
            finish(r);
        }
        return;
    }
    if (r->probe & FI_DISCARD) {
        discards(r, r->told_from, r->told_tag, r->told_len);
    } else {
        IS(entry->tag, r->told_tag);
        IS(entry->len, r->told_len);
        receives(r, r->buffer, entry->len, entry->flags & FI_REMOTE_CQ_DATA, entry->data, entry->tag);
        ends[r->at].received++;
    }
    finish(r);
}

static void failed(int at)
{
    struct fi_cq_err_entry entry = {0};
    IS(fi_cq_readerr(ends[at].side.cq, &entry, 0), 1);
    IS((entry.flags & FI_RECV) != 0, 1);
    struct receive *r = entry.op_context;
    if (r->probe) {
        IS(entry.err, FI_ENOMSG);
        IS((r->probe & FI_PEEK) != 0, 1);
        finish(r);
    } else if (entry.err == FI_ECANCELED) {
        IS(r->cancelled, 1);
        r->gone = true;
        finish(r);
    } else {
        IS(entry.err, FI_ETRUNC);
        struct message *m = receives(r, r->buffer, r->size, entry.flags & FI_REMOTE_CQ_DATA, entry.data, entry.tag);
        IS(m->len > r->size, 1);
        IS(entry.olen, m->len - r->size);
        finish(r);
    }
}

/* Handles one completion of this endpoint. */
static bool look(int at)
{
    struct end *e = &ends[at];
    struct fi_cq_tagged_entry entry;
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    ssize_t got = fi_cq_readfrom(e->side.cq, &entry, 1, &source);
    if (got == -FI_EAGAIN)
        return false;
    if (got == -FI_EAVAIL) {
        failed(at);
        return true;
    }
    IS(got, 1);
    if (entry.flags & FI_SEND) {
        struct message *m = entry.op_context;
        IS(m->ended, 0);
        IS(m->from, at);
        m->ended = true;
        free_buffer(m);
        return true;
    }
    struct receive *r = entry.op_context;
    IS(r->at, at);
    if (r->probe) {
        probe_found(r, &entry, source);
        return true;
    }
    if (entry.flags & FI_RECV) {
        char *where = r->multi ? entry.buf : r->buffer;
        IS(where >= r->buffer && where + entry.len <= r->buffer + r->size, 1);
        struct message *m = receives(r, where, entry.len, entry.flags & FI_REMOTE_CQ_DATA, entry.data, entry.tag);
        IS(m->len, entry.len);
        IS(source, e->peers[m->from]);
        e->received++;
    }
    if (!r->multi || (entry.flags & FI_MULTI_RECV))
        finish(r);
    return true;
}

static void cancel(struct receive *r)
{
    if (r->finished || r->cancelled || r->probe)
        return;
    r->cancelled = true;
    r->cancelled_at = tick++;
    ssize_t done = fi_cancel(&ends[r->at].side.ep->fid, r);
    /* Another of the two says that it has been matched. */
    if (done != -FI_ENOENT)
        IS(done, 0);
}

static void step(void)
{
    switch (below(11)) {
    case 0:
    case 1:
    case 2:
        start_send();
        break;
    case 3:
    case 4:
    case 5:
        start_receive(below(ENDS), one_in(3) ? MSG : TAGGED, false);
        break;
    case 6:
        if (!other_provider || getenv("PROBES"))
            start_probe();
        break;
    case 7:
        if (receive_count > 0 && one_in(4))
            cancel(&all_receives[below(receive_count)]);
        break;
    default:
        (void)look(below(ENDS));
    }
}

static void settle(void)
{
    for (size_t idle = 0; idle < 2000;) {
        bool any = false;
        for (int i = 0; i < ENDS; i++)
            any |= look(i);
        idle = any ? 0 : idle + 1;
    }
}

static void open_ends(void)
{
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP};
    size_t least = MOST;
    for (int i = 0; i < ENDS; i++) {
        struct end *e = &ends[i];
        open_side(&e->side, info);
        IS(fi_cntr_open(domain, &counter, &e->sends, NULL), 0);
        IS(fi_cntr_open(domain, &counter, &e->receives, NULL), 0);
        IS(fi_ep_bind(e->side.ep, &e->sends->fid, FI_SEND), 0);
        IS(fi_ep_bind(e->side.ep, &e->receives->fid, FI_RECV), 0);
        IS(fi_setopt(&e->side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
        IS(fi_enable(e->side.ep), 0);
    }
    for (int i = 0; i < ENDS; i++)
        for (int k = 0; k < ENDS; k++)
            ends[i].peers[k] = meet(&ends[i].side, &ends[k].side);
}

int main(int argc, char **argv)
{
    IS(argc, 3);
    chance = strtoull(argv[1], NULL, 10);
    size_t steps = strtoull(argv[2], NULL, 10);
    other_provider = getenv("PROVIDER");
    struct fi_info *hints = wishes(FI_TAGGED | FI_MSG | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (other_provider) {
        free(hints->fabric_attr->prov_name);
        hints->fabric_attr->prov_name = strdup(other_provider);
    }
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    fi_freeinfo(hints);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    open_ends();
    for (size_t i = 0; i < steps; i++)
        step();
    settle();
    /* What is left is taken by receives that take everything. */
    while (taken_count < message_count) {
        for (int i = 0; i < ENDS; i++) {
            start_receive(i, TAGGED, true);
            start_receive(i, MSG, true);
        }
        settle();
    }
    for (size_t i = 0; i < receive_count; i++)
        cancel(&all_receives[i]);
    settle();
    check_all();
    for (int i = 0; i < ENDS; i++) {
        IS(fi_cntr_read(ends[i].sends), ends[i].sent);
        if (!other_provider)
            IS(fi_cntr_read(ends[i].receives), ends[i].received);
    }
    printf("%zu messages, %zu receives: all are right\n", message_count, receive_count);
    for (int i = 0; i < ENDS; i++) {
        struct end *e = &ends[i];
        close_side(&e->side);
        IS(fi_close(&e->sends->fid), 0);
        IS(fi_close(&e->receives->fid), 0);
    }
    close_domain();
    return 0;
}
