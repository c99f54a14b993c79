/* Random active messages of gasnet_random.c: every category, 0 to 16 arguments, all lengths, with and without replies.
 *
 * A message has a token, in its first argument or where there is none in the first bytes of its payload; the rest of it, and
 * what is replied, follows from the token, so that both sides know what must arrive. What has no token is counted. */
#ifndef GASNET_RANDOM_MESSAGES_H
#define GASNET_RANDOM_MESSAGES_H

#include "gasnet_parameters.h"
#include "gasnet_random_model.h"

enum { SHORT = 128, MEDIUM = 145, LONG = 162, SHORT_BACK = 179, MEDIUM_BACK = 196, LONG_BACK = 213, HERE = 230, ASK, TELL, BARE };
enum { NOTHING, REPLY_SHORT, REPLY_MEDIUM, REPLY_LONG };
/* Of a token: slot, thread, and whether it must be answered. */
enum { SLOT_BITS = 5, THREAD_BITS = 2, ANSWER = 1 << 7 };

static gasnet_hsl_t first = GASNET_HSL_INITIALIZER, second = GASNET_HSL_INITIALIZER;
/* Messages without a reply of each node, under both locks; twice, to see whether the locks lock. */
static unsigned silent[NODES], silent_again[NODES];
/* As the senders count; of client threads and handlers. */
static unsigned silent_sent[NODES], bare_sent[NODES], bare_back[NODES];
static unsigned told[NODES], tell_count[NODES];
static unsigned known_bases;

struct plan {
	unsigned reply, count;
	size_t len, offset;
};

/* What node `from` gets back for a token. */
static struct plan plan(uint32_t token, gasnet_node_t from)
{
	uint64_t h = mix(token, from), g = mix(h, 1);
	size_t most = gasnet_AMMaxLongReply() < region / 8 ? gasnet_AMMaxLongReply() : region / 8;
	struct plan p;

	memset(&p, 0, sizeof p);
	p.reply = h % 8 == 0 ? REPLY_LONG : h % 8 < 3 ? REPLY_MEDIUM : h % 8 < 6 ? REPLY_SHORT : NOTHING;
	if (p.reply == NOTHING && token & ANSWER) p.reply = REPLY_SHORT;
	if (p.reply == REPLY_MEDIUM) {
		p.len = g % 3 == 0 ? gasnet_AMMaxMedium() - g / 8 % 3 : g / 8 % 200;
	} else if (p.reply == REPLY_LONG) {
		p.len = g % 4 == 0 ? g / 8 % (most + 1) : g % 4 == 1 ? 1970 + g / 8 % 7 : g / 8 % 300;
		p.offset = (g >> 32) % (region - p.len + 1);
	}
	p.count = (unsigned)(h >> 32) % 17;
	if (p.count == 0 && p.len < 4) p.count = 1;
	return p;
}

static arg nth(uint32_t token, int back, unsigned i)
{
	return i == 0 ? (arg)token : (arg)mix(token + (back ? 77 : 0), i);
}

static void write_payload(byte *p, size_t len, uint32_t token, int back)
{
	fill(p, len, mix(token, back ? 1001 : 1000));
	if (len >= 4) memcpy(p, &token, 4);
}

static int is_payload(const byte *p, size_t len, uint32_t token, int back)
{
	byte begin[8];
	size_t n = len < 8 ? len : 8;

	write_payload(begin, n, token, back);
	if (memcmp(p, begin, n) != 0) return 0;
	if (len <= 8) return 1;
	{
		/* The first word of the stream is under the token. */
		uint64_t key = mix(token, back ? 1001 : 1000);

		return is_filled(p + 8, len - 8, key * 6364136223846793005ull + 1442695040888963407ull);
	}
}

static int has_token(unsigned count, const arg *a, const byte *p, size_t len, uint32_t *token)
{
	if (count > 0)
		*token = (uint32_t)a[0];
	else if (len >= 4)
		memcpy(token, p, 4);
	else
		return 0;
	return 1;
}

/* ---- handlers ---- */

#define ALL_ARGS(a) a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]

static void count_silent(gasnet_node_t from)
{
	gasnet_hsl_lock(&first);
	silent[from]++;
	gasnet_hsl_lock(&second);
	silent_again[from]++;
	gasnet_hsl_unlock(&second);
	gasnet_hsl_unlock(&first);
}

static void answer(gasnet_token_t t, gasnet_node_t from, uint32_t token)
{
	struct plan p = plan(token, from);
	unsigned number = from * threads + (token >> SLOT_BITS & ((1 << THREAD_BITS) - 1)), i;
	byte short_one[256] __attribute__((aligned(8))), *buf = short_one;
	arg a[16];

	if (p.reply == NOTHING) {
		count_silent(from);
		return;
	}
	for (i = 0; i < 16; i++) a[i] = nth(token, 1, i);
	if (p.len + 8 > sizeof short_one) buf = (byte *)malloc(p.len + 8);
	CHECK(buf);
	buf += token % 8;
	write_payload(buf, p.len, token, 1);
	if (gasnet_hsl_trylock(&first) == GASNET_OK) gasnet_hsl_unlock(&first);
	if (p.reply == REPLY_SHORT) OK(gasnet_AMReplyShort(t, SHORT_BACK + p.count, (int)p.count, ALL_ARGS(a)));
	if (p.reply == REPLY_MEDIUM)
		OK(gasnet_AMReplyMedium(t, MEDIUM_BACK + p.count, buf, p.len, (int)p.count, ALL_ARGS(a)));
	if (p.reply == REPLY_LONG)
		OK(gasnet_AMReplyLong(t, LONG_BACK + p.count, buf, p.len, place(from, number) + p.offset, (int)p.count,
				      ALL_ARGS(a)));
	memset(buf, USED, p.len);
	if (p.len + 8 > sizeof short_one) free(buf - token % 8);
}

/* A request of `count` arguments, or its payload's. */
static void asked(gasnet_token_t t, unsigned count, const arg *a, byte *p, size_t len)
{
	gasnet_node_t from;
	uint32_t token;
	unsigned i;

	OK(gasnet_AMGetMsgSource(t, &from));
	if (!has_token(count, a, p, len, &token)) {
		CHECK(is_all(p, len, 0x5c));
		if (p == NULL)
			OK(gasnet_AMReplyShort0(t, BARE));
		else
			count_silent(from);
		return;
	}
	for (i = 0; i < count; i++) CHECK(a[i] == nth(token, 0, i));
	CHECK(is_payload(p, len, token, 0));
	answer(t, from, token);
}

static void answered(gasnet_token_t t, unsigned count, const arg *a, byte *p, size_t len, unsigned kind)
{
	gasnet_node_t from;
	uint32_t token;
	struct message *m;
	struct plan want;
	struct worker *w;
	unsigned i;

	OK(gasnet_AMGetMsgSource(t, &from));
	CHECK(has_token(count, a, p, len, &token));
	want = plan(token, me);
	CHECK(want.reply == kind && want.count == count && want.len == len);
	for (i = 0; i < count; i++) CHECK(a[i] == nth(token, 1, i));
	CHECK(is_payload(p, len, token, 1));
	w = workers[token >> SLOT_BITS & ((1 << THREAD_BITS) - 1)];
	m = &w->message[token & (SLOTS - 1)];
	CHECK(m->busy && !m->silent && m->token == token && m->there.node == from && !__atomic_load_n(&m->done, __ATOMIC_ACQUIRE));
	if (kind == REPLY_LONG && len > 0) CHECK(p == at(w, me, want.offset));
	__atomic_store_n(&m->done, 1, __ATOMIC_RELEASE);
}

static void bare(gasnet_token_t t)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(t, &from));
	__atomic_fetch_add(&bare_back[from], 1, __ATOMIC_RELAXED);
}

static void tell(gasnet_token_t t, arg count)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(t, &from));
	tell_count[from] = (unsigned)count;
	__atomic_store_n(&told[from], 1, __ATOMIC_RELEASE);
}

static void ask(gasnet_token_t t)
{
	gasnet_node_t from;
	unsigned count;

	OK(gasnet_AMGetMsgSource(t, &from));
	gasnet_hsl_lock(&first);
	count = silent[from];
	gasnet_hsl_unlock(&first);
	OK(gasnet_AMReplyShort1(t, TELL, (arg)count));
}

static void here(gasnet_token_t t, arg high, arg low)
{
	gasnet_node_t from;

	OK(gasnet_AMGetMsgSource(t, &from));
	base[from] = (byte *)((uintptr_t)(uint32_t)high << 32 | (uint32_t)low);
	__atomic_fetch_add(&known_bases, 1, __ATOMIC_RELEASE);
}

#define EACH(X) \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)
#define HANDLERS(m)                                                                            \
	static void short##m(gasnet_token_t t P##m)                                             \
	{                                                                                       \
		arg all[] = { 0 A##m };                                                         \
		asked(t, m, all + 1, NULL, 0);                                                  \
	}                                                                                       \
	static void payload##m(gasnet_token_t t, void *p, size_t n P##m)                        \
	{                                                                                       \
		arg all[] = { 0 A##m };                                                         \
		static byte none;                                                               \
		asked(t, m, all + 1, n == 0 ? &none : (byte *)p, n);                            \
	}                                                                                       \
	static void short_back##m(gasnet_token_t t P##m)                                        \
	{                                                                                       \
		arg all[] = { 0 A##m };                                                         \
		answered(t, m, all + 1, NULL, 0, REPLY_SHORT);                                  \
	}                                                                                       \
	static void medium_back##m(gasnet_token_t t, void *p, size_t n P##m)                    \
	{                                                                                       \
		arg all[] = { 0 A##m };                                                         \
		CHECK((uintptr_t)p % 8 == 0);                                                   \
		answered(t, m, all + 1, (byte *)p, n, REPLY_MEDIUM);                            \
	}                                                                                       \
	static void long_back##m(gasnet_token_t t, void *p, size_t n P##m)                      \
	{                                                                                       \
		arg all[] = { 0 A##m };                                                         \
		answered(t, m, all + 1, (byte *)p, n, REPLY_LONG);                              \
	}
EACH(HANDLERS)

#define ENTRIES(m)                                                                                                        \
	{ SHORT + m, (void (*)())short##m }, { MEDIUM + m, (void (*)())payload##m }, { LONG + m, (void (*)())payload##m }, \
		{ SHORT_BACK + m, (void (*)())short_back##m }, { MEDIUM_BACK + m, (void (*)())medium_back##m },            \
		{ LONG_BACK + m, (void (*)())long_back##m },
static gasnet_handlerentry_t entries[] = { EACH(ENTRIES){ HERE, (void (*)())here },
					   { ASK, (void (*)())ask },
					   { TELL, (void (*)())tell },
					   { BARE, (void (*)())bare } };

/* ---- sending ---- */

static void message_ends(struct worker *w, struct message *m)
{
	if (m->back.from < m->back.to) {
		struct plan p = plan(m->token, me);

		write_payload(w->shadow[me] + p.offset, p.len, m->token, 1);
	}
	if (m->memory.all) {
		spoil(w, &m->memory);
		give_back(w, &m->memory);
	}
	memset(m, 0, sizeof *m);
}

static void send(struct worker *w)
{
	gasnet_node_t node = one_in(w, 5) ? me : below(w, nodes);
	unsigned category = below(w, 4), count = below(w, 17), slot = 0, i;
	size_t most = category == 1 ? gasnet_AMMaxMedium() : region / 4;
	size_t len = category == 0 ? 0 : length(w, most);
	struct message *m;
	struct plan p;
	void *source;
	arg a[16];
	int tries;

	while (slot < SLOTS && w->message[slot].busy) slot++;
	if (slot == SLOTS) return;
	m = &w->message[slot];
	/* What has no token has no reply that would end it. */
	if (category == 3 && count == 0 && len < 4) count = 1;
	w->doing = "a message";
	if (category == 0 && count == 0) {
		__atomic_fetch_add(&bare_sent[node], 1, __ATOMIC_RELAXED);
		OK(gasnet_AMRequestShort0(node, SHORT));
		return;
	}
	m->there.node = node;
	if (category > 1 && !find(w, &m->there, node, len, 1, 1)) return;
	m->there.node = node;
	for (tries = 0; ; tries++) {
		if (tries == 6) {
			memset(m, 0, sizeof *m);
			return;
		}
		m->token = draw(&w->state) << 8 | (category == 3 ? ANSWER : 0) | w->thread << SLOT_BITS | slot;
		p = plan(m->token, me);
		m->busy = 1;
		if (count == 0 && len < 4) p.reply = NOTHING;
		m->back.from = m->back.to = 0;
		if (p.reply != REPLY_LONG || p.len == 0) break;
		{
			struct range back;

			back.node = me, back.from = p.offset, back.to = p.offset + p.len, back.write = 1;
			if (!is_free(w, &back)) continue;
			m->back = back;
			break;
		}
	}
	m->silent = p.reply == NOTHING;
	for (i = 0; i < 16; i++) a[i] = nth(m->token, 0, i);
	if (category > 0 && len == 0) {
		/* Nobody looks there. */
		source = one_in(w, 2) ? NULL : (void *)(uintptr_t)(one_in(w, 2) ? 1 : UINTPTR_MAX);
	} else if (category > 0) {
		take(w, &m->memory, len, 1, 2);
		if (count == 0 && len < 4)
			memset(m->memory.at, 0x5c, len);
		else
			write_payload(m->memory.at, len, m->token, 0);
		if (category > 1) memcpy(w->shadow[node] + m->there.from, m->memory.at, len);
		if (m->memory.kind == OWN) memcpy(w->shadow[me] + m->memory.own.from, m->memory.at, len);
		seal(&m->memory);
		source = m->memory.at;
	} else {
		source = NULL;
	}
	if (m->silent) __atomic_fetch_add(&silent_sent[node], 1, __ATOMIC_RELAXED);
	switch (category) {
	case 0:
		OK(gasnet_AMRequestShort(node, SHORT + count, (int)count, ALL_ARGS(a)));
		break;
	case 1:
		OK(gasnet_AMRequestMedium(node, MEDIUM + count, source, len, (int)count, ALL_ARGS(a)));
		break;
	case 2:
		OK(gasnet_AMRequestLong(node, LONG + count, source, len, at(w, node, m->there.from), (int)count, ALL_ARGS(a)));
		break;
	default:
		OK(gasnet_AMRequestLongAsync(node, LONG + count, source, len, at(w, node, m->there.from), (int)count,
					     ALL_ARGS(a)));
	}
	if (category < 3 && m->memory.all) {
		spoil(w, &m->memory);
		give_back(w, &m->memory);
	}
	/* Only what may still come is kept; a Long without reply has its range until all have met. */
	if (m->silent && category < 2) message_ends(w, m);
}

static void gather_replies(struct worker *w, int all)
{
	unsigned i, first_one = below(w, SLOTS);

	w->doing = "wait for replies";
	for (i = 0; i < SLOTS; i++) {
		struct message *m = &w->message[(first_one + i) % SLOTS];

		if (!m->busy || m->silent) continue;
		if (all) GASNET_BLOCKUNTIL(__atomic_load_n(&m->done, __ATOMIC_ACQUIRE));
		if (__atomic_load_n(&m->done, __ATOMIC_ACQUIRE)) message_ends(w, m);
	}
}

/* What this node sent without reply has arrived; by one thread, when no other sends. */
static void all_arrived(void)
{
	gasnet_node_t n;

	for (n = 0; n < nodes; n++) {
		GASNET_BLOCKUNTIL(__atomic_load_n(&bare_back[n], __ATOMIC_RELAXED) == bare_sent[n]);
		do {
			__atomic_store_n(&told[n], 0, __ATOMIC_RELAXED);
			OK(gasnet_AMRequestShort0(n, ASK));
			GASNET_BLOCKUNTIL(__atomic_load_n(&told[n], __ATOMIC_ACQUIRE));
			CHECK(tell_count[n] <= silent_sent[n]);
		} while (tell_count[n] != silent_sent[n]);
	}
}

/* As nothing is under way, the ranges of Longs without reply are free. */
static void silent_end(struct worker *w)
{
	unsigned i;

	for (i = 0; i < SLOTS; i++)
		if (w->message[i].busy && w->message[i].silent) message_ends(w, &w->message[i]);
}

static void locks(struct worker *w)
{
	gasnet_hsl_t own;
	gasnet_node_t n;
	byte some[64];

	w->doing = "locks";
	if (one_in(w, 2)) {
		gasnet_hold_interrupts();
		fill(some, sizeof some, 5);
		gasnet_resume_interrupts();
		return;
	}
	gasnet_hsl_init(&own);
	gasnet_hsl_lock(&first);
	OK(gasnet_hsl_trylock(&own));
	gasnet_hsl_lock(&second);
	for (n = 0; n < nodes; n++) HOLDS(silent[n] == silent_again[n]);
	gasnet_hsl_unlock(&second);
	gasnet_hsl_unlock(&own);
	gasnet_hsl_unlock(&first);
	gasnet_hsl_destroy(&own);
}

#endif
