/* Invalid arguments and damaged files: each gives an error or a shorter report, and never a crash. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checks that the call fails with an argument error that has a message. */
#define REFUSED(call)                                                    \
    do {                                                                 \
        offld_error *error = NULL;                                       \
        CHECK((call) == OFFLD_STATUS_ARGUMENT);                          \
        CHECK(offld_error_status(error) == OFFLD_STATUS_ARGUMENT);       \
        CHECK(offld_error_message(error).size > 5);                      \
        offld_error_free(error);                                         \
    } while (0)

static void null_handles(void)
{
    CHECK(offld_report_image_count(NULL) == 0 && offld_report_image(NULL, 0) == NULL);
    CHECK(offld_report_registration_count(NULL) == 0 && offld_report_registration(NULL, 0) == NULL);
    CHECK(offld_report_error_count(NULL) == 0 && is(offld_report_error(NULL, 0), ""));
    CHECK(is(offld_report_name(NULL), "") && is(offld_report_type(NULL), ""));
    CHECK(offld_image_index(NULL) == 0 && offld_image_kinds(NULL) == 0 && offld_image_flags(NULL) == 0);
    CHECK(is(offld_image_triple(NULL), "") && is(offld_image_target(NULL), "") && is(offld_image_format(NULL), ""));
    CHECK(is(offld_image_machine(NULL), "") && is(offld_image_section(NULL), "") && is(offld_image_container(NULL), ""));
    CHECK(is(offld_image_id(NULL), "") && is(offld_image_stored_as(NULL), "") && is(offld_image_sha256(NULL), ""));
    CHECK(offld_image_offset(NULL) == OFFLD_NONE && offld_image_compressed_size(NULL) == OFFLD_NONE && offld_image_size(NULL) == 0);
    CHECK(offld_image_member_count(NULL) == 0 && is(offld_image_member(NULL, 0), ""));
    CHECK(offld_image_step_count(NULL) == 0 && offld_image_step(NULL, 0) == NULL);
    CHECK(offld_image_string_count(NULL) == 0 && is(offld_image_string_key(NULL, 0), "") && is(offld_image_string_value(NULL, 0), ""));
    CHECK(offld_image_producer_count(NULL) == 0 && is(offld_image_producer(NULL, 0), ""));
    CHECK(offld_image_kernel_count(NULL) == 0 && is(offld_image_kernel(NULL, 0), ""));
    CHECK(is(offld_step_kind(NULL), "") && is(offld_step_name(NULL), "") && is(offld_step_compression(NULL), ""));
    CHECK(offld_step_offset(NULL) == OFFLD_NONE && offld_step_size(NULL) == 0 && offld_step_plain_size(NULL) == OFFLD_NONE);
    CHECK(offld_step_version(NULL) == 0);
    CHECK(is(offld_registration_runtime(NULL), "") && is(offld_registration_symbol(NULL), "") && is(offld_registration_found(NULL), ""));
    CHECK(offld_registration_member_count(NULL) == 0 && is(offld_registration_member(NULL, 0), ""));
    CHECK(offld_registration_library_count(NULL) == 0 && is(offld_registration_library(NULL, 0), ""));
    CHECK(is(offld_registration_library_path(NULL, 0), ""));
    CHECK(offld_package_count(NULL) == 0 && offld_package_entry(NULL, 0) == NULL);
    CHECK(offld_entry_kinds(NULL) == 0 && offld_entry_format(NULL) == 0 && offld_entry_flags(NULL) == 0);
    CHECK(offld_entry_data(NULL) == NULL && offld_entry_size(NULL) == 0);
    CHECK(is(offld_entry_triple(NULL), "") && is(offld_entry_arch(NULL), "") && offld_entry_string_count(NULL) == 0);
    CHECK(is(offld_entry_string_key(NULL, 0), "") && is(offld_entry_string_value(NULL, 0), ""));
    CHECK(offld_buffer_data(NULL) == NULL && offld_buffer_size(NULL) == 0);
    CHECK(offld_error_status(NULL) == OFFLD_STATUS_OK && is(offld_error_message(NULL), ""));
    CHECK(offld_error_offset(NULL) == OFFLD_NONE && offld_error_system(NULL) == 0);
    CHECK(is(offld_status_name(OFFLD_STATUS_MALFORMED), "malformed") && is(offld_status_name(-5), "unknown"));
    offld_options_set_kernels(NULL, true);
    offld_options_set_headers_only(NULL, true);
    offld_options_set_max_unpacked(NULL, 1);
    offld_report_free(NULL);
    offld_options_free(NULL);
    offld_package_free(NULL);
    offld_buffer_free(NULL);
    offld_error_free(NULL);
}

static void null_arguments(void)
{
    offld_report *report = (offld_report *)&report;
    offld_package *package = NULL;
    offld_buffer *buffer = NULL;
    const uint8_t *data = NULL;
    size_t size = 0;

    REFUSED(offld_open_path(NULL, NULL, &report, &error));
    CHECK(report == NULL);
    REFUSED(offld_open_path("fat.o", NULL, NULL, &error));
    REFUSED(offld_open_fd(-1, NULL, NULL, &report, &error));
    REFUSED(offld_open_fd(0, NULL, NULL, NULL, &error));
    REFUSED(offld_open_memory(NULL, 1, NULL, NULL, &report, &error));
    REFUSED(offld_open_memory((const uint8_t *)"x", SIZE_MAX, NULL, NULL, &report, &error));
    REFUSED(offld_open_memory((const uint8_t *)"x", SIZE_MAX / 2 + 1, NULL, NULL, &report, &error));
    REFUSED(offld_open_memory((const uint8_t *)"x", 1, NULL, NULL, NULL, &error));
    REFUSED(offld_report_json(NULL, &buffer, &error));
    REFUSED(offld_image_bytes(NULL, &data, &size, &error));
    REFUSED(offld_image_write_fd(NULL, 1, &error));
    REFUSED(offld_image_write_path(NULL, "nothing", &error));
    REFUSED(offld_image_write(NULL, NULL, NULL, &error));
    REFUSED(offld_package_read(NULL, 5, &package, &error));
    REFUSED(offld_package_read((const uint8_t *)"x", 1, NULL, &error));
    REFUSED(offld_package_add(NULL, NULL, 0, NULL, &error));
    REFUSED(offld_package_set_kinds(NULL, 0, 0, &error));
    REFUSED(offld_package_write_memory(NULL, OFFLD_PACK_SHARED, &buffer, &error));
    /* Without an error pointer, only the status reports the error. */
    CHECK(offld_open_path(NULL, NULL, NULL, NULL) == OFFLD_STATUS_ARGUMENT);
    CHECK(offld_package_add(NULL, NULL, 0, NULL, NULL) == OFFLD_STATUS_ARGUMENT);
}

static void wrong_arguments(void)
{
    offld_report *report = NULL;
    offld_package *package = offld_package_new();
    offld_buffer *buffer = NULL;
    offld_error *error = NULL;
    const uint8_t *data = NULL;
    size_t size = 0;
    int closed = dup(1);

    CHECK(close(closed) == 0);
    CHECK(offld_open_fd(closed, NULL, NULL, &report, &error) == OFFLD_STATUS_IO && offld_error_system(error) == EBADF);
    offld_error_free(error);
    CHECK(offld_open_path("none", NULL, &report, &error) == OFFLD_STATUS_IO && report == NULL);
    CHECK(offld_error_system(error) == ENOENT && is(offld_error_message(error), "'none': No such file or directory"));
    offld_error_free(error);
    CHECK(offld_open_path(".", NULL, &report, &error) == OFFLD_STATUS_IO && offld_error_system(error) == EISDIR);
    offld_error_free(error);
    /* A path need not be UTF-8. */
    CHECK(offld_open_path("\xff\xfe", NULL, &report, &error) == OFFLD_STATUS_IO && offld_error_system(error) == ENOENT);
    offld_error_free(error);

    REFUSED(offld_package_set_kinds(package, 0, 1, &error));
    CHECK(offld_package_add(package, (const uint8_t *)"x", 1, NULL, NULL) == OFFLD_STATUS_OK);
    REFUSED(offld_package_add(package, (const uint8_t *)"x", SIZE_MAX, NULL, &error));
    REFUSED(offld_package_set_kinds(package, SIZE_MAX, 1, &error));
    REFUSED(offld_package_set_kinds(package, 0, 0x10000, &error));
    REFUSED(offld_package_set_format(package, 0, 0x10000, &error));
    REFUSED(offld_package_set_string(package, 0, NULL, "x", &error));
    REFUSED(offld_package_set_string(package, 0, "x", NULL, &error));
    REFUSED(offld_package_set_string(package, 0, "x", "\xff", &error));
    REFUSED(offld_package_write_memory(package, 0, &buffer, &error));
    REFUSED(offld_package_write_memory(package, 3, &buffer, &error));
    REFUSED(offld_package_write_memory(package, OFFLD_PACK_SEPARATE, NULL, &error));
    REFUSED(offld_package_write_path(package, OFFLD_PACK_SEPARATE, NULL, &error));
    REFUSED(offld_package_write_fd(package, OFFLD_PACK_SEPARATE, -1, &error));
    REFUSED(offld_package_write(package, OFFLD_PACK_SEPARATE, NULL, NULL, &error));
    CHECK(offld_package_count(package) == 1);
    offld_package_free(package);

    CHECK(offld_open_path("fat.o", NULL, &report, NULL) == OFFLD_STATUS_OK);
    const offld_image *image = offld_report_image(report, 0);
    REFUSED(offld_image_bytes(image, NULL, &size, &error));
    REFUSED(offld_image_bytes(image, &data, NULL, &error));
    REFUSED(offld_image_write(image, NULL, NULL, &error));
    REFUSED(offld_image_write_fd(image, -7, &error));
    REFUSED(offld_image_write_path(image, NULL, &error));
    REFUSED(offld_report_json(report, NULL, &error));
    CHECK(offld_report_image(report, SIZE_MAX) == NULL && offld_image_step(image, SIZE_MAX) == NULL);
    CHECK(is(offld_image_string_key(image, SIZE_MAX), "") && is(offld_report_error(report, SIZE_MAX), ""));
    offld_report_free(report);
}

void hostile_arguments(void)
{
    null_handles();
    null_arguments();
    wrong_arguments();
}

/* Checks that any bytes give a report with readable contents, and a package or an error. */
static void survives(const unsigned char *bytes, size_t size)
{
    offld_report *report = NULL;
    offld_package *package = NULL;
    offld_error *error = NULL;
    const uint8_t *data = NULL;
    size_t length, sum = 0;

    CHECK(offld_open_memory(bytes, size, "damaged", NULL, &report, NULL) == OFFLD_STATUS_OK);
    for (size_t i = 0; i < offld_report_image_count(report); i++) {
        CHECK(offld_image_bytes(offld_report_image(report, i), &data, &length, NULL) == OFFLD_STATUS_OK);
        for (size_t at = 0; at < length; at++)
            sum += data[at];
        sum += offld_image_triple(offld_report_image(report, i)).size;
    }
    for (size_t i = 0; i < offld_report_error_count(report); i++)
        CHECK(offld_report_error(report, i).size > 5);
    offld_report_free(report);
    if (offld_package_read(bytes, size, &package, &error) == OFFLD_STATUS_OK) {
        for (size_t i = 0; i < offld_package_count(package); i++)
            sum += offld_entry_size(offld_package_entry(package, i));
        offld_package_free(package);
    } else {
        CHECK(offld_error_status(error) == OFFLD_STATUS_MALFORMED || offld_error_status(error) == OFFLD_STATUS_OTHER);
        CHECK(offld_error_message(error).size > 5);
        offld_error_free(error);
    }
    CHECK(sum < SIZE_MAX);
}

/* Truncates the file and changes bytes of it, `rounds` times each, in the same way in each run. */
static void damages(const char *path, unsigned long rounds)
{
    size_t size;
    unsigned char *bytes = contents(path, &size);
    uint64_t random = 88172645463325252u;

    for (unsigned long round = 0; round < rounds; round++) {
        /* The copy has exactly this size, so tools detect a read past its end. */
        size_t cut = size * round / rounds;
        unsigned char *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        survives(part, cut);
        free(part);
        for (int i = 0; i < 4; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[random % size] ^= (unsigned char)(random >> 40);
        }
        survives(bytes, size);
    }
    free(bytes);
}

void damaged(unsigned long rounds)
{
    offld_report *report = NULL;

    CHECK(offld_open_path("damaged.o", NULL, &report, NULL) == OFFLD_STATUS_OK);
    CHECK(is(offld_report_type(report), "elf-object") && offld_report_image_count(report) < 3);
    CHECK(offld_report_error_count(report) > 0 && has(offld_report_error(report, 0), "damaged.o: .llvm.offloading"));
    offld_report_free(report);
    damages("fat.o", rounds);
    damages("of-llvm", rounds);
    damages("fat.a.gz", rounds);
    damages("bundle", rounds);
}
