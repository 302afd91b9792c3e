#include <stdio.h>

int ignored;

__attribute__((constructor)) static void never(void) { printf("a member that nothing asks for\n"); }
