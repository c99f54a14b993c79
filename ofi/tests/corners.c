/* Corners of libfabric's manual pages that few programs visit: each call does what its page says, or gives the error that the page names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "is.h"

/* One endpoint, which sends to itself; its receives complete only when they ask for it. */
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *sent, *received;
static struct fid_av *av;
static fi_addr_t self;
static struct fi_info *info;

static void open_all(void)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t len = sizeof name;
    hints->caps = FI_TAGGED | FI_MSG | FI_RMA | FI_MULTI_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("portolan");
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    fi_freeinfo(hints);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_cq_open(domain, &cq, &sent, NULL), 0);
    IS(fi_cq_open(domain, &cq, &received, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_ep_bind(ep, &sent->fid, FI_TRANSMIT), 0);
    IS(fi_ep_bind(ep, &received->fid, FI_RECV | FI_SELECTIVE_COMPLETION), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_enable(ep), 0);
    IS(fi_getname(&ep->fid, name, &len), 0);
    IS(fi_av_insert(av, name, 1, &self, 0, NULL), 1);
}

static struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
    struct fi_cq_tagged_entry entry;
    IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), 1);
    return entry;
}

static struct fi_cq_err_entry failure(struct fid_cq *cq, int why)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failed = {0};
    IS(fi_cq_sread(cq, &entry, 1, NULL, 60000), -FI_EAVAIL);
    IS(fi_cq_readerr(cq, &failed, 0), 1);
    IS(failed.err, why);
    return failed;
}

/* Everything that was sent has arrived. */
static void settle(void)
{
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 100; i++)
        IS(fi_cq_read(sent, &entry, 1), -FI_EAGAIN);
}

/* Nothing that is longer than an operation may be is begun. */
static void lengths(void)
{
    static char byte;
    const size_t lens[] = {info->ep_attr->max_msg_size + 1, SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        IS(fi_send(ep, &byte, lens[i], NULL, self, NULL), -FI_EMSGSIZE);
        IS(fi_tsend(ep, &byte, lens[i], NULL, self, 1, NULL), -FI_EMSGSIZE);
        IS(fi_write(ep, &byte, lens[i], NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
        IS(fi_read(ep, &byte, lens[i], NULL, self, 0, 1, NULL), -FI_EMSGSIZE);
    }
    IS(fi_inject(ep, &byte, info->tx_attr->inject_size + 1, self), -FI_EMSGSIZE);
    IS(fi_inject_write(ep, &byte, info->tx_attr->inject_size + 1, self, 0, 1), -FI_EMSGSIZE);
    settle();
}

/* A multi-receive whose program wants no completions still says that it gives its buffer back, however little room it may leave. */
static void multi_receives(void)
{
    static char buffer[64], from[16] = "0123456789abcde";
    struct iovec whole = {buffer, 2 * sizeof from};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
    size_t least = 0;
    IS(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
    for (int early = 0; early < 2; early++) {
        memset(buffer, 0, sizeof buffer);
        if (!early)
            IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
        for (int i = 0; i < 3; i++)
            IS(fi_inject(ep, from, sizeof from, self), 0);
        settle();
        if (early)
            IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
        struct fi_cq_tagged_entry entry = next(received);
        IS(entry.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
        IS(entry.buf == buffer + sizeof from, 1);
        IS(memcmp(buffer, from, sizeof from) || memcmp(buffer + sizeof from, from, sizeof from), 0);
        /* The third is for the next receive. */
        IS(fi_recvmsg(ep, &(struct fi_msg){.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC}, FI_COMPLETION), 0);
        IS(next(received).len, sizeof from);
    }
    IS(fi_recvmsg(ep, &msg, FI_MULTI_RECV), 0);
    IS(fi_cancel(&ep->fid, buffer), 0);
    struct fi_cq_err_entry failed = failure(received, FI_ECANCELED);
    IS(failed.flags, FI_MSG | FI_RECV | FI_MULTI_RECV);
    IS(failed.op_context == buffer, 1);
}

/* A look at messages without a tag takes none; one that is dropped says how long it was. */
static void looks(void)
{
    static char to[8];
    struct iovec whole = {to, sizeof to};
    struct fi_msg msg = {.msg_iov = &whole, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = to};
    struct fi_msg_tagged tagged = {.addr = FI_ADDR_UNSPEC, .tag = 5, .context = to};
    IS(fi_recvmsg(ep, &msg, FI_PEEK | FI_COMPLETION), 0);
    failure(received, FI_ENOMSG);
    IS(fi_inject(ep, "looked", 7, self), 0);
    IS(fi_tinject(ep, "dropped", 8, self, 5), 0);
    settle();
    for (int i = 0; i < 2; i++) {
        IS(fi_recvmsg(ep, &msg, FI_PEEK | FI_COMPLETION), 0);
        struct fi_cq_tagged_entry entry = next(received);
        IS(entry.len, 7);
        IS(entry.flags, FI_MSG | FI_RECV);
        IS(to[0], 0);
    }
    IS(fi_recvmsg(ep, &msg, FI_COMPLETION), 0);
    IS(next(received).len, 7);
    IS(strcmp(to, "looked"), 0);
    IS(fi_trecvmsg(ep, &tagged, FI_PEEK | FI_DISCARD | FI_COMPLETION), 0);
    IS(next(received).len, 8);
    IS(fi_trecvmsg(ep, &tagged, FI_PEEK | FI_DISCARD), 0);
    IS(failure(received, FI_ENOMSG).tag, 5);
}

/* A send that awaits its match has none before a receive takes the message. */
static void matches(void)
{
    static char from[3000], to[3000];
    const size_t lens[] = {0, 8, sizeof from};
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 3; i++)
        for (int injected = 0; injected < 2; injected++) {
            struct iovec whole = {from, lens[i]};
            struct fi_msg_tagged msg = {.msg_iov = &whole, .iov_count = 1, .addr = self, .tag = 9, .context = from};
            memset(from, i + 1, sizeof from);
            IS(fi_tsendmsg(ep, &msg, FI_MATCH_COMPLETE | (injected ? FI_INJECT : 0)), 0);
            if (injected)
                memset(from, 0, sizeof from);
            settle();
            IS(fi_trecv(ep, to, sizeof to, NULL, FI_ADDR_UNSPEC, 9, 0, NULL), 0);
            entry = next(sent);
            IS(entry.op_context == from && entry.flags == (FI_TAGGED | FI_SEND), 1);
            IS(lens[i] > 0 && to[lens[i] - 1] != i + 1, 0);
        }
}

int main(void)
{
    open_all();
    lengths();
    multi_receives();
    looks();
    matches();
    IS(fi_close(&ep->fid), 0);
    IS(fi_close(&sent->fid), 0);
    IS(fi_close(&received->fid), 0);
    IS(fi_close(&av->fid), 0);
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    puts("all corners are right");
    return 0;
}
