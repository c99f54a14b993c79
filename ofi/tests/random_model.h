/* What random.c knows of its messages and receives, and the rules that they keep. */
#include <rdma/fi_tagged.h>

#include "is.h"

enum { ENDS = 3, TAGS = 4, MOST = 20000, MESSAGES = 20000, RECEIVES = 60000, AHEAD = 60, CANARY = 16, ANYBODY = -1 };
enum lane { TAGGED, MSG };

struct message {
    int from, to;
    enum lane lane;
    uint64_t tag, number;
    size_t len;
    bool has_data, ended;
    char *buffer;
    /* The receive that it came to. */
    struct receive *taken;
};

struct receive {
    int at, from;
    enum lane lane;
    uint64_t tag, ignore, probe, told_tag;
    size_t size, told_len;
    char *buffer;
    int told_from;
    bool multi, cancelled, gone, finished, discards;
    /* When it was posted, cancelled and finished. */
    size_t posted_at, cancelled_at, finished_at;
};

static struct message all_messages[MESSAGES];
static struct receive all_receives[RECEIVES];
static size_t message_count, receive_count, taken_count, done_count, tick;
static const char *other_provider;

static char byte_of(uint64_t number, size_t at)
{
    return (char)(number * 31 + at * 7 + (at >> 8));
}

static struct message *new_message(int from, int to, enum lane lane)
{
    struct message *m = &all_messages[message_count];
    *m = (struct message){.from = from, .to = to, .lane = lane, .number = message_count};
    message_count++;
    return m;
}

static void fill(struct message *m)
{
    for (size_t i = 0; i < m->len; i++)
        m->buffer[i] = byte_of(m->number, i);
    if (m->len >= sizeof m->number)
        memcpy(m->buffer, &m->number, sizeof m->number);
}

static void free_buffer(struct message *m)
{
    free(m->buffer);
    m->buffer = NULL;
}

/* The last message was not sent. */
static void take_back(struct message *m)
{
    free_buffer(m);
    message_count--;
}

static struct receive *new_receive(int at, enum lane lane)
{
    struct receive *r = &all_receives[receive_count++];
    *r = (struct receive){.at = at, .from = ANYBODY, .lane = lane, .posted_at = tick++};
    return r;
}

/* The last receive was not posted. */
static void drop(struct receive *r)
{
    free(r->buffer);
    receive_count--;
}

static void finish(struct receive *r)
{
    IS(r->finished, 0);
    r->finished = true;
    r->finished_at = tick++;
    done_count++;
    if (r->buffer) {
        for (size_t i = 0; i < CANARY; i++)
            IS(r->buffer[r->size + i], 0x5a);
        free(r->buffer);
    }
    r->buffer = NULL;
}

static bool matches(const struct receive *r, const struct message *m)
{
    return r->at == m->to && r->lane == m->lane && (r->from == ANYBODY || r->from == m->from) &&
           (m->lane == MSG || ((r->tag ^ m->tag) & ~r->ignore) == 0);
}

/* A message has come to a receive, or the first `len` bytes of it. */
static struct message *receives(struct receive *r, const char *where, size_t len, bool has_data, uint64_t data, uint64_t tag)
{
    uint64_t number = data;
    if (len >= sizeof number)
        memcpy(&number, where, sizeof number);
    else
        IS(has_data, 1);
    IS(number < message_count, 1);
    struct message *m = &all_messages[number];
    IS(m->taken == NULL, 1);
    IS(matches(r, m), 1);
    if (!other_provider || !r->cancelled)
        IS(has_data, m->has_data);
    if (has_data)
        IS(data, number);
    if (m->lane == TAGGED)
        IS(tag, m->tag);
    for (size_t i = len < sizeof number ? 0 : sizeof number; i < len; i++)
        IS(where[i], byte_of(number, i));
    m->taken = r;
    taken_count++;
    return m;
}

/* A probe has discarded the first message of a sender with a tag and a length. Which one that was is known when all others are. */
static void discards(struct receive *r, int from, uint64_t tag, size_t len)
{
    r->discards = true;
    r->told_from = from;
    r->told_tag = tag;
    r->told_len = len;
    taken_count++;
}

static void find_discarded(struct receive *r)
{
    for (size_t i = 0; i < message_count; i++) {
        struct message *m = &all_messages[i];
        if (!m->taken && matches(r, m) && m->from == r->told_from && m->tag == r->told_tag && m->len == r->told_len) {
            m->taken = r;
            return;
        }
    }
    fprintf(stderr, "a message of %zu bytes and tag %llu was discarded, and nobody had sent it\n", r->told_len, (unsigned long long)r->told_tag);
    exit(1);
}

/* All has ended: was each message taken by the receive that it had to be taken by? */
static void check_all(void)
{
    for (size_t i = 0; i < receive_count; i++) {
        IS(all_receives[i].finished, 1);
        if (all_receives[i].discards)
            find_discarded(&all_receives[i]);
    }
    for (size_t i = 0; i < message_count; i++) {
        const struct message *m = &all_messages[i];
        IS(m->taken != NULL, 1);
        IS(m->ended, 1);
        /* An earlier one of the same sender that this receive matches was taken by an earlier receive. */
        for (size_t k = 0; k < i; k++) {
            const struct message *earlier = &all_messages[k];
            if (earlier->from == m->from && matches(m->taken, earlier) && earlier->taken->posted_at > m->taken->posted_at) {
                fprintf(stderr, "message %zu overtook %zu, both from %d to %d\n", i, k, m->from, m->to);
                exit(1);
            }
        }
        /* No receive that was posted earlier waited for it in vain. */
        for (const struct receive *r = all_receives; r < m->taken; r++)
            if (r->gone && matches(r, m) && r->cancelled_at > m->taken->finished_at) {
                fprintf(stderr, "message %zu went past receive %zu\n", i, (size_t)(r - all_receives));
                exit(1);
            }
    }
}
