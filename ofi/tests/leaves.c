/* A process sends messages to a peer that has not been heard of, which gets them all: though they are injected, and the endpoint is closed at
   once; or, with `exit`, though the process ends without closing it when the last has ended; or, with `_exit`, though it ends at once
   when the last has ended as `FI_TRANSMIT_COMPLETE` says. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "domain.h"

/* More than a peer that has not been heard of may be sent. */
enum { MESSAGES = 300, LEN = 100 };

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;

static void open_all(void)
{
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    open_domain(FI_TAGGED | FI_MSG);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_enable(ep), 0);
}

static void close_all(void)
{
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&cq->fid), 0);
    IS(fi_close(&av->fid), 0);
    close_domain();
}

static void ends(fi_addr_t peer, int at_once)
{
    char bytes[LEN];
    for (int i = 0; i < MESSAGES; i++) {
        struct fi_cq_tagged_entry entry;
        struct iovec whole = {bytes, LEN};
        struct fi_msg_tagged msg = {.msg_iov = &whole, .iov_count = 1, .addr = peer, .tag = 1};
        memset(bytes, i, LEN);
        IS(fi_tsendmsg(ep, &msg, at_once ? FI_TRANSMIT_COMPLETE : 0), 0);
        IS(fi_cq_sread(cq, &entry, 1, NULL, 20000), 1);
    }
    if (at_once)
        _exit(0);
    exit(0);
}

static void sends(int from, const char *how)
{
    char name[64], bytes[LEN];
    fi_addr_t peer;
    open_all();
    IS(read(from, name, sizeof name) >= 32, 1);
    IS(fi_av_insert(av, name, 1, &peer, 0, NULL), 1);
    if (how)
        ends(peer, strcmp(how, "_exit") == 0);
    for (int i = 0; i < MESSAGES; i++) {
        struct iovec whole = {bytes, LEN};
        struct fi_msg_tagged msg = {.msg_iov = &whole, .iov_count = 1, .addr = peer, .tag = 1};
        memset(bytes, i, LEN);
        /* One of them has a completion, which nobody takes. */
        IS(i % 2 ? fi_tinject(ep, bytes, LEN, peer, 1) : fi_tsendmsg(ep, &msg, FI_INJECT), 0);
    }
    close_all();
}

static void receives(int to)
{
    char name[64], bytes[LEN];
    size_t len = sizeof name;
    open_all();
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(write(to, name, len), len);
    for (int i = 0; i < MESSAGES; i++) {
        struct fi_cq_tagged_entry entry;
        IS(fi_trecv(ep, bytes, LEN, NULL, FI_ADDR_UNSPEC, 1, 0, bytes), 0);
        IS(fi_cq_sread(cq, &entry, 1, NULL, 20000), 1);
        IS(entry.len, LEN);
        for (int at = 0; at < LEN; at++)
            IS(bytes[at], (char)i);
    }
    close_all();
}

int main(int argc, char **argv)
{
    int ways[2], status;
    IS(pipe(ways), 0);
    pid_t child = fork();
    if (child == 0) {
        sends(ways[0], argc > 1 ? argv[1] : NULL);
        exit(0);
    }
    receives(ways[1]);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    puts("all has arrived");
    return 0;
}
