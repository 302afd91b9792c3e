/* Several threads at once: each with its own handles, and all with one shared report. */
#include "test.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 10 };

static void *works(void *context)
{
    const offld_report *shared = context;
    offld_report *own = NULL;
    offld_error *error = NULL;
    offld_package *package = NULL;
    offld_buffer *buffer = NULL;

    for (int round = 0; round < ROUNDS; round++) {
        check_fat(shared, "fat.o");
        CHECK(offld_open_path("fat.o", NULL, &own, &error) == OFFLD_STATUS_OK && error == NULL);
        check_fat(own, "fat.o");
        offld_report_free(own);
        CHECK(offld_open_path("fat.a.gz", NULL, &own, &error) == OFFLD_STATUS_OK && offld_report_image_count(own) == 3);
        offld_report_free(own);
        CHECK(offld_open_path("none", NULL, &own, &error) == OFFLD_STATUS_IO);
        offld_error_free(error);
        package = offld_package_new();
        CHECK(offld_package_add(package, (const uint8_t *)"bytes", 5, NULL, NULL) == OFFLD_STATUS_OK);
        CHECK(offld_package_write_memory(package, OFFLD_PACK_SEPARATE, &buffer, NULL) == OFFLD_STATUS_OK);
        offld_package_free(package);
        CHECK(offld_package_read(offld_buffer_data(buffer), offld_buffer_size(buffer), &package, NULL) == OFFLD_STATUS_OK);
        CHECK(memcmp(offld_entry_data(offld_package_entry(package, 0)), "bytes", 5) == 0);
        offld_package_free(package);
        offld_buffer_free(buffer);
    }
    return NULL;
}

void threads(void)
{
    pthread_t all[THREADS];
    offld_report *shared = NULL;

    CHECK(offld_open_path("fat.o", NULL, &shared, NULL) == OFFLD_STATUS_OK);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, works, shared) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    offld_report_free(shared);
}
