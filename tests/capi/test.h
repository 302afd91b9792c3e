/* What the parts of the C test share. */
#ifndef TEST_H
#define TEST_H

#include <offld.h>
#include <stdio.h>

extern int failures;

/* Says where `condition` does not hold, and goes on. */
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
            failures++;                                                                   \
        }                                                                                 \
    } while (0)

/* Whether `text` is `expected`, with a zero behind it; whether `part` is in it. */
bool is(offld_string text, const char *expected);
bool has(offld_string text, const char *part);
/* All of a file; the caller frees it. */
unsigned char *contents(const char *path, size_t *size);
/* What must be said of `fat.o`. */
void check_fat(const offld_report *report, const char *name);

/* package.c */
void packages(void);
/* hostile.c */
void hostile_arguments(void);
void damaged(unsigned long rounds);
/* threads.c */
void threads(void);

#endif
