/* An object of tools alone in a program of GASNet (gasnet_clock.c), or a program of its own (-DALONE). */
#include <gasnet_tools.h>

gasnett_tick_t ticks_of_tools(void)
{
	return gasnett_ticks_now();
}

#ifdef ALONE
int main(void)
{
	gasnett_tick_t start = ticks_of_tools();

	gasnett_compute_ns(1000000000);
	return !(ticks_of_tools() >= start && !gasnett_ticks_are_virtual());
}
#endif
