/* Two images a node, and a team in which the nodes' images alternate: one of each node meets the others in its barrier. */
#include <gasnet.h>
#include <gasnet_coll.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gasnet_check.h"

enum { IMAGES = 2, MOST = 8 };

static pthread_barrier_t both;

static void barrier(void)
{
	gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
	OK(gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS));
}

static void *image(void *arg)
{
	int which = (int)(intptr_t)arg, nodes = (int)gasnet_nodes(), me = (int)gasnet_mynode(), i;
	gasnet_image_t images[MOST];
	gasnet_team_handle_t team;

	CHECK(nodes <= MOST);
	for (i = 0; i < nodes; i++) images[i] = IMAGES;
	gasnet_coll_init(images, (gasnet_image_t)(me * IMAGES + which), NULL, 0, 0);
	pthread_barrier_wait(&both);
	if (which == 0) barrier();
	pthread_barrier_wait(&both);
	team = gasnet_coll_team_split(GASNET_TEAM_ALL, 0, (gasnet_node_t)(which * nodes + me), NULL);
	pthread_barrier_wait(&both);
	if (which == 0) OK(gasnet_coll_barrier(team, 5, 0));
	pthread_barrier_wait(&both);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t other;

	OK(gasnet_init(&argc, &argv));
	OK(gasnet_attach(NULL, 0, GASNET_PAGESIZE, 0));
	CHECK(pthread_barrier_init(&both, NULL, IMAGES) == 0);
	CHECK(pthread_create(&other, NULL, image, (void *)(intptr_t)1) == 0);
	image(NULL);
	CHECK(pthread_join(other, NULL) == 0);
	printf("node %d: all right\n", (int)gasnet_mynode());
	fflush(NULL);
	barrier();
	gasnet_exit(0);
	return 1;
}
