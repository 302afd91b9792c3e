/* Shared by the parts of the C test. */
#ifndef TEST_H
#define TEST_H

#include <offld.h>
#include <stdio.h>

extern int failures;

/* Prints the location if `condition` does not hold, and continues. */
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
            failures++;                                                                   \
        }                                                                                 \
    } while (0)

/* Whether `text` equals `expected` and ends with a zero byte; whether it contains `part`. */
bool is(offld_string text, const char *expected);
bool has(offld_string text, const char *part);
/* The contents of a file. The caller frees them. */
unsigned char *contents(const char *path, size_t *size);
/* Checks the report for `fat.o`. */
void check_fat(const offld_report *report, const char *name);

/* package.c */
void packages(void);
/* compare.c */
void comparisons(void);
/* hostile.c */
void hostile_arguments(void);
void damaged(unsigned long rounds);
/* threads.c */
void threads(void);

#endif
