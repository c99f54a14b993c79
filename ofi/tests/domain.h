/* What programs of these tests open first: the fabric and a domain of it, as this provider describes them. */
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "is.h"

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fi_info *info;

static inline struct fi_info *wishes(uint64_t caps)
{
    struct fi_info *hints = fi_allocinfo();
    hints->caps = caps;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("portolan");
    return hints;
}

static inline void open_domain(uint64_t caps)
{
    struct fi_info *hints = wishes(caps);
    IS(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
    fi_freeinfo(hints);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
}

static inline void close_domain(void)
{
    IS(fi_close(&domain->fid), 0);
    IS(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}
