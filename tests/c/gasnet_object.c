/* A shared object with data that programs transfer from and to; two of them have the same layout and other contents. */
#ifndef CONTENTS
#define CONTENTS 1
#endif

char memory[1 << 20] __attribute__((aligned(4096))) = { CONTENTS };
