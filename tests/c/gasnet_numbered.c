/* Every numbered form of the active messages: 0 to 16 arguments, each category, requests and replies. */
#include <gasnet.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gasnet_check.h"
#include "gasnet_parameters.h"

enum { SHORT = 128, SHORT_BACK = 145, MEDIUM = 162, LONG = 179, BACK = 196, PLAIN = 213, SIZE = 8192, TEXT = 24 };
static volatile int backs;
static char text[TEXT] = "what the messages carry";
static char *home, *there, *back_there;

/* Arguments are 1000 + 3 * their place. */
static void looks(int count, const arg *a)
{
	int i;

	for (i = 0; i < count; i++)
		if (a[i] != 1000 + 3 * i) {
			fprintf(stderr, "%d arguments: number %d is %d\n", count, i, (int)a[i]);
			gasnet_exit(1);
		}
}

static void carries(void *p, size_t n)
{
	if (n != TEXT || memcmp(p, text, n) != 0) {
		fprintf(stderr, "a payload of %lu bytes is another one\n", (unsigned long)n);
		gasnet_exit(1);
	}
}

#define HANDLERS(m, parameters, arguments, reply_short, reply_medium, reply_long)               \
	static void short##m(gasnet_token_t t parameters)                                        \
	{                                                                                        \
		arg all[] = { 0 arguments };                                                     \
		looks(m, all + 1);                                                               \
		OK(reply_short(t, SHORT_BACK + m arguments));                                    \
	}                                                                                        \
	static void short_back##m(gasnet_token_t t parameters)                                   \
	{                                                                                        \
		arg all[] = { 0 arguments };                                                     \
		(void)t;                                                                         \
		looks(m, all + 1);                                                               \
		backs++;                                                                         \
	}                                                                                        \
	static void medium##m(gasnet_token_t t, void *p, size_t n parameters)                    \
	{                                                                                        \
		arg all[] = { 0 arguments };                                                     \
		looks(m, all + 1);                                                               \
		carries(p, n);                                                                   \
		OK(reply_medium(t, BACK + m, p, n arguments));                                   \
	}                                                                                        \
	static void long##m(gasnet_token_t t, void *p, size_t n parameters)                      \
	{                                                                                        \
		arg all[] = { 0 arguments };                                                     \
		looks(m, all + 1);                                                               \
		carries(p, n);                                                                   \
		OK(reply_long(t, BACK + m, p, n, back_there arguments));                         \
	}                                                                                        \
	static void back##m(gasnet_token_t t, void *p, size_t n parameters)                      \
	{                                                                                        \
		arg all[] = { 0 arguments };                                                     \
		(void)t;                                                                         \
		looks(m, all + 1);                                                               \
		carries(p, n);                                                                   \
		backs++;                                                                         \
	}

HANDLERS(0, P0, A0, gasnet_AMReplyShort0, gasnet_AMReplyMedium0, gasnet_AMReplyLong0)
HANDLERS(1, P1, A1, gasnet_AMReplyShort1, gasnet_AMReplyMedium1, gasnet_AMReplyLong1)
HANDLERS(2, P2, A2, gasnet_AMReplyShort2, gasnet_AMReplyMedium2, gasnet_AMReplyLong2)
HANDLERS(3, P3, A3, gasnet_AMReplyShort3, gasnet_AMReplyMedium3, gasnet_AMReplyLong3)
HANDLERS(4, P4, A4, gasnet_AMReplyShort4, gasnet_AMReplyMedium4, gasnet_AMReplyLong4)
HANDLERS(5, P5, A5, gasnet_AMReplyShort5, gasnet_AMReplyMedium5, gasnet_AMReplyLong5)
HANDLERS(6, P6, A6, gasnet_AMReplyShort6, gasnet_AMReplyMedium6, gasnet_AMReplyLong6)
HANDLERS(7, P7, A7, gasnet_AMReplyShort7, gasnet_AMReplyMedium7, gasnet_AMReplyLong7)
HANDLERS(8, P8, A8, gasnet_AMReplyShort8, gasnet_AMReplyMedium8, gasnet_AMReplyLong8)
HANDLERS(9, P9, A9, gasnet_AMReplyShort9, gasnet_AMReplyMedium9, gasnet_AMReplyLong9)
HANDLERS(10, P10, A10, gasnet_AMReplyShort10, gasnet_AMReplyMedium10, gasnet_AMReplyLong10)
HANDLERS(11, P11, A11, gasnet_AMReplyShort11, gasnet_AMReplyMedium11, gasnet_AMReplyLong11)
HANDLERS(12, P12, A12, gasnet_AMReplyShort12, gasnet_AMReplyMedium12, gasnet_AMReplyLong12)
HANDLERS(13, P13, A13, gasnet_AMReplyShort13, gasnet_AMReplyMedium13, gasnet_AMReplyLong13)
HANDLERS(14, P14, A14, gasnet_AMReplyShort14, gasnet_AMReplyMedium14, gasnet_AMReplyLong14)
HANDLERS(15, P15, A15, gasnet_AMReplyShort15, gasnet_AMReplyMedium15, gasnet_AMReplyLong15)
HANDLERS(16, P16, A16, gasnet_AMReplyShort16, gasnet_AMReplyMedium16, gasnet_AMReplyLong16)

/* The forms that are told the number. */
static void plain(gasnet_token_t t, void *p, size_t n, arg longer)
{
	carries(p, n);
	if (longer)
		OK(gasnet_AMReplyLong(t, BACK + 1, p, n, back_there, 1, 1000));
	else
		OK(gasnet_AMReplyMedium(t, BACK + 2, p, n, 2, 1000, 1003));
}

static void send(gasnet_node_t to)
{
	char *mine = home + SIZE / 2;

	memcpy(mine, text, TEXT);
	OK(gasnet_AMRequestMedium(to, PLAIN, text, TEXT, 1, 0));
	OK(gasnet_AMRequestLong(to, PLAIN, text, TEXT, there, 1, 1));
	OK(gasnet_AMRequestLongAsync(to, PLAIN, mine, TEXT, there, 1, 0));
	OK(gasnet_AMRequestShort0(to, SHORT + 0));
	OK(gasnet_AMRequestMedium0(to, MEDIUM + 0, text, TEXT));
	OK(gasnet_AMRequestLong0(to, LONG + 0, text, TEXT, there));
	OK(gasnet_AMRequestLongAsync0(to, LONG + 0, mine, TEXT, there));
	OK(gasnet_AMRequestShort1(to, SHORT + 1, 1000));
	OK(gasnet_AMRequestMedium1(to, MEDIUM + 1, text, TEXT, 1000));
	OK(gasnet_AMRequestLong1(to, LONG + 1, text, TEXT, there, 1000));
	OK(gasnet_AMRequestLongAsync1(to, LONG + 1, mine, TEXT, there, 1000));
	OK(gasnet_AMRequestShort2(to, SHORT + 2, 1000, 1003));
	OK(gasnet_AMRequestMedium2(to, MEDIUM + 2, text, TEXT, 1000, 1003));
	OK(gasnet_AMRequestLong2(to, LONG + 2, text, TEXT, there, 1000, 1003));
	OK(gasnet_AMRequestLongAsync2(to, LONG + 2, mine, TEXT, there, 1000, 1003));
	OK(gasnet_AMRequestShort3(to, SHORT + 3, 1000, 1003, 1006));
	OK(gasnet_AMRequestMedium3(to, MEDIUM + 3, text, TEXT, 1000, 1003, 1006));
	OK(gasnet_AMRequestLong3(to, LONG + 3, text, TEXT, there, 1000, 1003, 1006));
	OK(gasnet_AMRequestLongAsync3(to, LONG + 3, mine, TEXT, there, 1000, 1003, 1006));
	OK(gasnet_AMRequestShort4(to, SHORT + 4, 1000, 1003, 1006, 1009));
	OK(gasnet_AMRequestMedium4(to, MEDIUM + 4, text, TEXT, 1000, 1003, 1006, 1009));
	OK(gasnet_AMRequestLong4(to, LONG + 4, text, TEXT, there, 1000, 1003, 1006, 1009));
	OK(gasnet_AMRequestLongAsync4(to, LONG + 4, mine, TEXT, there, 1000, 1003, 1006, 1009));
	OK(gasnet_AMRequestShort5(to, SHORT + 5, 1000, 1003, 1006, 1009, 1012));
	OK(gasnet_AMRequestMedium5(to, MEDIUM + 5, text, TEXT, 1000, 1003, 1006, 1009, 1012));
	OK(gasnet_AMRequestLong5(to, LONG + 5, text, TEXT, there, 1000, 1003, 1006, 1009, 1012));
	OK(gasnet_AMRequestLongAsync5(to, LONG + 5, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012));
	OK(gasnet_AMRequestShort6(to, SHORT + 6, 1000, 1003, 1006, 1009, 1012, 1015));
	OK(gasnet_AMRequestMedium6(to, MEDIUM + 6, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015));
	OK(gasnet_AMRequestLong6(to, LONG + 6, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015));
	OK(gasnet_AMRequestLongAsync6(to, LONG + 6, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015));
	OK(gasnet_AMRequestShort7(to, SHORT + 7, 1000, 1003, 1006, 1009, 1012, 1015, 1018));
	OK(gasnet_AMRequestMedium7(to, MEDIUM + 7, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018));
	OK(gasnet_AMRequestLong7(to, LONG + 7, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018));
	OK(gasnet_AMRequestLongAsync7(to, LONG + 7, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018));
	OK(gasnet_AMRequestShort8(to, SHORT + 8, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021));
	OK(gasnet_AMRequestMedium8(to, MEDIUM + 8, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021));
	OK(gasnet_AMRequestLong8(to, LONG + 8, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021));
	OK(gasnet_AMRequestLongAsync8(to, LONG + 8, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021));
	OK(gasnet_AMRequestShort9(to, SHORT + 9, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024));
	OK(gasnet_AMRequestMedium9(to, MEDIUM + 9, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024));
	OK(gasnet_AMRequestLong9(to, LONG + 9, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024));
	OK(gasnet_AMRequestLongAsync9(to, LONG + 9, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024));
	OK(gasnet_AMRequestShort10(to, SHORT + 10, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027));
	OK(gasnet_AMRequestMedium10(to, MEDIUM + 10, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027));
	OK(gasnet_AMRequestLong10(to, LONG + 10, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027));
	OK(gasnet_AMRequestLongAsync10(to, LONG + 10, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027));
	OK(gasnet_AMRequestShort11(to, SHORT + 11, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030));
	OK(gasnet_AMRequestMedium11(to, MEDIUM + 11, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030));
	OK(gasnet_AMRequestLong11(to, LONG + 11, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030));
	OK(gasnet_AMRequestLongAsync11(to, LONG + 11, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030));
	OK(gasnet_AMRequestShort12(to, SHORT + 12, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030, 1033));
	OK(gasnet_AMRequestMedium12(to, MEDIUM + 12, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030, 1033));
	OK(gasnet_AMRequestLong12(to, LONG + 12, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033));
	OK(gasnet_AMRequestLongAsync12(to, LONG + 12, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033));
	OK(gasnet_AMRequestShort13(to, SHORT + 13, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030, 1033, 1036));
	OK(gasnet_AMRequestMedium13(to, MEDIUM + 13, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030, 1033, 1036));
	OK(gasnet_AMRequestLong13(to, LONG + 13, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036));
	OK(gasnet_AMRequestLongAsync13(to, LONG + 13, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036));
	OK(gasnet_AMRequestShort14(to, SHORT + 14, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030, 1033, 1036, 1039));
	OK(gasnet_AMRequestMedium14(to, MEDIUM + 14, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030, 1033, 1036, 1039));
	OK(gasnet_AMRequestLong14(to, LONG + 14, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039));
	OK(gasnet_AMRequestLongAsync14(to, LONG + 14, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039));
	OK(gasnet_AMRequestShort15(to, SHORT + 15, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030, 1033, 1036, 1039, 1042));
	OK(gasnet_AMRequestMedium15(to, MEDIUM + 15, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042));
	OK(gasnet_AMRequestLong15(to, LONG + 15, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042));
	OK(gasnet_AMRequestLongAsync15(to, LONG + 15, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042));
	OK(gasnet_AMRequestShort16(to, SHORT + 16, 1000, 1003, 1006, 1009, 1012, 1015, 1018, 1021, 1024,
		1027, 1030, 1033, 1036, 1039, 1042, 1045));
	OK(gasnet_AMRequestMedium16(to, MEDIUM + 16, text, TEXT, 1000, 1003, 1006, 1009, 1012, 1015, 1018,
		1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042, 1045));
	OK(gasnet_AMRequestLong16(to, LONG + 16, text, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042, 1045));
	OK(gasnet_AMRequestLongAsync16(to, LONG + 16, mine, TEXT, there, 1000, 1003, 1006, 1009, 1012, 1015,
		1018, 1021, 1024, 1027, 1030, 1033, 1036, 1039, 1042, 1045));
}

int main(int argc, char **argv)
{
#define ENTRIES(m)                                                                              \
	{ SHORT + m, (void (*)())short##m }, { SHORT_BACK + m, (void (*)())short_back##m },      \
	{ MEDIUM + m, (void (*)())medium##m }, { LONG + m, (void (*)())long##m },                \
	{ BACK + m, (void (*)())back##m }
	gasnet_handlerentry_t table[] = {
		ENTRIES(0), ENTRIES(1), ENTRIES(2), ENTRIES(3), ENTRIES(4), ENTRIES(5), ENTRIES(6), ENTRIES(7),
		ENTRIES(8), ENTRIES(9), ENTRIES(10), ENTRIES(11), ENTRIES(12), ENTRIES(13), ENTRIES(14),
		ENTRIES(15), ENTRIES(16), { PLAIN, (void (*)())plain },
	};
	gasnet_seginfo_t segment[64];
	gasnet_node_t to, nodes;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(table, sizeof table / sizeof *table, SIZE, 0));
	OK(gasnet_getSegmentInfo(segment, 64));
	nodes = gasnet_nodes();
	to = (gasnet_mynode() + 1) % nodes;
	home = (char *)segment[gasnet_mynode()].addr;
	there = (char *)segment[to].addr + SIZE / 4;
	back_there = (char *)segment[(gasnet_mynode() + nodes - 1) % nodes].addr;
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	send(to);
	GASNET_BLOCKUNTIL(backs == 4 * 17 + 3);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(stdout);
	gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
	gasnet_exit(0);
	return 0;
}
