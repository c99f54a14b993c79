/* Runs a shared object that was linked with the library, and a program is otherwise: its calls of the C library do not pass by the
 * one that it was linked with. The first argument is its path, the others are its own. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *object = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*run)(int, char **) = object == NULL ? NULL : (int (*)(int, char **))dlsym(object, "run");

	if (run == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	return run(argc - 1, argv + 1);
}
