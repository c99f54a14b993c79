/* An endpoint of the domain, and what it is bound to. */
#include <rdma/fi_tagged.h>

#include "domain.h"

struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
};

/* All but enabled. */
static inline void open_side(struct side *s, struct fi_info *of)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    IS(fi_endpoint(domain, of, &s->ep, NULL), 0);
    IS(fi_cq_open(domain, &cq, &s->cq, NULL), 0);
    IS(fi_av_open(domain, &av, &s->av, NULL), 0);
    IS(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV), 0);
    IS(fi_ep_bind(s->ep, &s->av->fid, 0), 0);
}

/* The address of a side, for another one. */
static inline fi_addr_t meet(struct side *of, struct side *peer)
{
    char name[256];
    size_t len = sizeof name;
    fi_addr_t addr;
    IS(fi_getname(&peer->ep->fid, name, &len), 0);
    IS(fi_av_insert(of->av, name, 1, &addr, 0, NULL), 1);
    return addr;
}

static inline void close_side(struct side *s)
{
    IS(fi_close(&s->ep->fid), 0);
    IS(fi_close(&s->cq->fid), 0);
    IS(fi_close(&s->av->fid), 0);
}
